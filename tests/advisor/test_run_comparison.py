"""Runs side by side: faster, slower or the same; how throughput scales; in what they differ."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from noisy_runs import noisy_plan, noisy_recording, noisy_run, pair_of
from recordings import plan, recording, running, series, step
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.run_comparison import compare, judge, load


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("scale", "change"), [(1.3, "regressed"), (0.75, "improved"), (1.0, "same"), (1.02, "same")])
def test_a_run_is_called_by_what_its_interval_says(scale: float, change: str, ranks: int) -> None:
    pair = pair_of(noisy_run("before", 1, ranks=ranks), noisy_run("after", 2, ranks=ranks, scale=scale))
    assert pair.change == change and pair.measure == "samples/s"
    assert pair.speed is not None and pair.speed.lo < pair.speed.value < pair.speed.hi
    assert pair.speed.value == pytest.approx(1 / scale, rel=0.06)


def test_the_same_two_runs_always_compare_alike() -> None:
    assert pair_of(noisy_run("a", 1), noisy_run("b", 2)) == pair_of(noisy_run("a", 1), noisy_run("b", 2))


def test_no_difference_found_says_how_small_one_could_hide() -> None:
    assert re.search(r"one below \d+ % might not", pair_of(noisy_run("a", 1), noisy_run("b", 2)).why)
    blind = pair_of(noisy_run("a", 1), noisy_run("b", 2), between_runs=0.4)
    assert blind.change == "unknown" and "might not be seen" not in blind.why


@pytest.mark.parametrize(
    ("speed", "change"),
    [
        ((0.95, 0.90, 0.999), "regressed"),
        ((0.95, 0.90, 1.0), "same"),
        ((0.995, 0.99, 0.999), "same"),
        ((1.05, 1.001, 1.1), "improved"),
        ((1.05, 1.0, 1.1), "same"),
        ((1.005, 1.001, 1.009), "same"),
    ],
)
def test_a_hundredth_is_nobodys_regression(speed: tuple[float, float, float], change: str) -> None:
    assert judge(Estimate(*speed)) == change


def test_the_phase_that_grew_is_named_with_its_interval() -> None:
    slower = noisy_run("after", 2, input_wait=60)
    pair = pair_of(noisy_run("before", 1), slower)
    sure = {d.phase for d in pair.phases if d.delta_s.lo > 0}
    assert "input_wait" in sure and "optimizer" not in sure
    delta = next(d for d in pair.phases if d.phase == "input_wait")
    assert delta.delta_s.lo < 0.05 < delta.delta_s.hi
    assert delta.other_s - delta.base_s == pytest.approx(delta.delta_s.value)
    whole = next(d for d in pair.phases if d.phase == "step")
    assert whole.delta_s.lo < 0.05 < whole.delta_s.hi and whole.base_s == pytest.approx(0.1, rel=0.05)


def test_ranks_scale_by_samples_and_efficiency_counts_from_the_fewest() -> None:
    runs = noisy_run("two", 1, ranks=2, scale=1.25), noisy_run("one", 2), noisy_run("four", 3, ranks=4, scale=2.0)
    made = compare(runs)
    shares = [run.efficiency.value if run.efficiency else None for run in made.runs]
    assert shares == [pytest.approx(0.8, rel=0.05), None, pytest.approx(0.5, rel=0.05)]
    assert [pair.change for pair in made.pairs] == ["regressed", "improved"]
    assert made.runs[0].samples_per_s == pytest.approx(128.0, rel=0.05)


def test_efficiency_of_scaling_is_not_claimed_for_other_gpus_or_another_model() -> None:
    def efficiency(one: dict[str, Any], two: dict[str, Any]) -> Estimate | None:
        return compare((noisy_run("one", 1, facts=one), noisy_run("two", 2, ranks=2, facts=two))).runs[1].efficiency

    h100, l40s = ({"cuda": {"name": name}} for name in ("NVIDIA H100", "NVIDIA L40S"))
    assert efficiency(h100, h100) is not None
    assert efficiency(h100, l40s) is None and efficiency({}, h100) is None
    assert efficiency({"optimizer": {"parameters": 161}}, {"optimizer": {"parameters": 62}}) is None


def test_other_gpus_are_named_beside_the_result() -> None:
    pair = pair_of(noisy_run("a", 1, facts={"cuda": {"name": "NVIDIA H100"}}), noisy_run("b", 2))
    assert "different devices: NVIDIA H100 → CPU" in pair.notes


def test_the_phases_that_grow_with_more_ranks_are_named() -> None:
    alone = load("one", noisy_recording(1), place=1)
    together = load("two", recording(dict.fromkeys(range(2), noisy_plan(2, 120)), wire_ms=40), place=2)
    (wire,) = [delta for delta in compare((alone, together)).pairs[0].phases if delta.phase == "comm_exposed"]
    assert wire.base_s == 0 and wire.other_s == pytest.approx(0.04, rel=0.05) and wire.delta_s.lo > 0.03


def test_another_batch_size_is_compared_by_samples_with_a_warning() -> None:
    pair = pair_of(noisy_run("a", 1), noisy_run("b", 2, scale=1.5, samples=16))
    assert pair.change == "improved" and pair.speed is not None
    assert pair.speed.value == pytest.approx(2 / 1.5, rel=0.06)
    assert any("batch size 8 → 16" in note for note in pair.notes) and not pair.phases


def test_what_cannot_be_compared_is_said_and_not_guessed() -> None:
    short = load("short", recording({0: [step()]}))
    assert pair_of(noisy_run("a", 1), short).change == "unknown"
    assert "short has no steady step: too few" in pair_of(noisy_run("a", 1), short).why
    uncounted = noisy_run("b", 2, ranks=2, samples=0), noisy_run("a", 1, samples=0)
    assert pair_of(*uncounted).change == "unknown" and pair_of(*uncounted).speed is None


def test_a_few_steps_are_no_mean_and_missing_ranks_no_run() -> None:
    few, enough = load("few", recording({0: plan(10)})), load("enough", recording({0: plan(11)}))
    assert pair_of(noisy_run("a", 1), few).why == "few has 9 steady steps: too few to compare"
    assert pair_of(noisy_run("a", 1), enough).change != "unknown"
    whole = noisy_recording(2, ranks=2)
    half = load("half", replace(whole, steps={0: whole.steps[0]}))
    pair = pair_of(noisy_run("a", 1, ranks=2), half)
    assert (pair.change, pair.why) == ("unknown", "of half only 1 of 2 ranks were recorded")
    assert compare((noisy_run("a", 1), half)).runs[1].efficiency is None


def test_runs_of_the_same_job_measure_how_far_apart_they_lie() -> None:
    base, other = noisy_run("a", 1), noisy_run("b", 2, scale=1.15)
    steady = [noisy_run(f"r{seed}", seed) for seed in (3, 4, 5, 6, 7)]
    moody = [noisy_run(f"r{seed}", seed, own_noise=0.15) for seed in (3, 4, 5, 6, 7)]
    assert compare((base, other)).pairs[0].change == "same"
    assert "assumed" in compare((base, other)).method.basis
    measured = compare((base, other), repeated=steady)
    assert measured.pairs[0].change == "regressed" and "measured on 6 of them" in measured.method.basis
    assert compare((base, other), repeated=moody).method.between_runs[0] > 0.07
    assert len(measured.runs) == 2


def test_without_counted_samples_steps_are_compared_where_the_job_is_the_same() -> None:
    pair = pair_of(noisy_run("a", 1, samples=0), noisy_run("b", 2, scale=1.4, samples=0))
    assert pair.change == "regressed" and pair.measure == "steps/s"


def test_a_run_that_goes_on_can_be_compared() -> None:
    going = load("now", running(noisy_recording(2)), place=1)
    assert pair_of(noisy_run("a", 1), going).change == "same"


def finding(rule: str, severity: Any, seconds: float) -> Finding:
    return Finding(rule, rule.lower(), severity, 0.9, seconds)


def test_findings_come_and_go_small_ones_unmentioned() -> None:
    old, new = noisy_run("a", 1), noisy_run("b", 2)
    was = (finding("DAT003", "high", 0.02), finding("COM001", "medium", 0.01), finding("LOP004", "low", 0.001))
    now = (finding("COM001", "low", 0.002), finding("CPU003", "critical", 0.03))
    base = replace(old, report=replace(old.report, findings=was))
    other = replace(new, report=replace(new.report, findings=now))
    changes = [(c.rule, c.state, c.base_s, c.other_s) for c in pair_of(base, other).findings]
    assert changes == [
        ("DAT003", "gone", 0.02, None),
        ("COM001", "stays", 0.01, 0.002),
        ("CPU003", "appeared", None, 0.03),
    ]


def test_the_limit_fails_what_is_proved_slower_and_notes_what_cannot_be_judged() -> None:
    base, slow, alike = noisy_run("a", 1), noisy_run("b", 2, scale=1.25), noisy_run("c", 3)
    short = load("short", recording({0: [step()]}))
    made = compare((base, slow, alike, short), max_regression=0.1)
    assert made.gate is not None and (made.gate.failed, made.gate.unjudged) == ((1,), (3,))
    loose = compare((base, slow), max_regression=0.3).gate
    assert loose is not None and loose.failed == ()
    assert compare((base, slow)).gate is None


def test_the_kernels_part_of_chance_must_not_decide() -> None:
    """The heap of one start gives its memory back in each step, that of the other does not."""
    faulty = noisy_run("b", 2, scale=1.0, forward=45)
    steps = faulty.analysis
    luck = {**steps.values, ("step.system_s", 0): 0.015}
    assert pair_of(noisy_run("a", 1), faulty, between_runs=0.01).change == "regressed"
    excused = pair_of(noisy_run("a", 1), replace(faulty, analysis=replace(steps, values=luck)), between_runs=0.01)
    assert excused.change == "same" and any("page faults" in note for note in excused.notes)


def test_other_load_on_the_machine_is_reported_and_widens_the_interval() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 2.0), (20, 2.0)),
        ("cpu.busy_s", "host"): series((0, 0.0), (20, 30.0)),
        ("job.cpu_s", "job"): series((0, 0.0), (20, 10.0)),
    }
    beside = load("b", replace(noisy_recording(2), samples=samples), place=1)
    pair = pair_of(noisy_run("a", 1), beside)
    assert any("used by other processes: 1 during b" in note for note in pair.notes)
    assert pair.speed is not None and pair.speed.lo < 0.5
    assert pair.change == "unknown" and pair.why.startswith("the runs vary too much to tell: between ")
    made = compare((noisy_run("a", 1), beside), max_regression=0.05)
    assert made.gate is not None and (made.gate.failed, made.gate.unjudged) == ((), (1,))
