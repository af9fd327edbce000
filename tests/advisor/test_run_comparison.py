"""Runs side by side: faster, slower or the same; how throughput scales; in what they differ."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from noisy_runs import noisy_plan, noisy_recording, noisy_run
from recordings import folded, plan, recording, running, series, step
from rn50_advisor.advisor.analysis.compare.run_settings import options
from rn50_advisor.advisor.model.documents.comparison import Comparison, Estimate, Pair
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.run_comparison import compare, judge, load

LOADER = {"id": 0, "training": True, "file": "train.py", "line": 7, "num_workers": 0, "batch_size": 8}


def pair_of(*runs: Any, **given: Any) -> Pair:
    return compare(runs, **given).pairs[0]


def about(**more: Any) -> dict[str, Any]:
    return {"pid": 1, "torch": "2.9.0", "loaders": [LOADER], "gc": {"enabled": True, "collections": [7, 1, 0]}, **more}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("scale", "change"), [(1.3, "regressed"), (0.75, "improved"), (1.0, "same"), (1.02, "same")])
def test_a_run_is_called_by_what_its_interval_says(scale: float, change: str, ranks: int) -> None:
    pair = pair_of(noisy_run("before", 1, ranks=ranks), noisy_run("after", 2, ranks=ranks, scale=scale))
    assert pair.change == change and pair.measure == "samples/s"
    assert pair.speed is not None and pair.speed.lo < pair.speed.value < pair.speed.hi
    assert pair.speed.value == pytest.approx(1 / scale, rel=0.06)


def test_two_runs_of_one_job_are_the_same_in_nineteen_of_twenty() -> None:
    """Runs that differ from each other by as much as was measured, on top of steps that remember their neighbours."""
    changes = [
        pair_of(
            noisy_run("a", 2 * seed, steps=80, own_noise=0.05), noisy_run("b", 2 * seed + 1, steps=80, own_noise=0.05)
        ).change
        for seed in range(60)
    ]
    assert changes.count("same") >= 57


def test_slow_noise_widens_the_interval() -> None:
    calm = pair_of(noisy_run("a", 1, slow_noise=0.0), noisy_run("b", 2, slow_noise=0.0), between_runs=0.0)
    moody = pair_of(noisy_run("a", 1, slow_noise=0.3), noisy_run("b", 2, slow_noise=0.3), between_runs=0.0)
    assert calm.speed is not None and moody.speed is not None
    assert moody.speed.hi - moody.speed.lo > 3 * (calm.speed.hi - calm.speed.lo)


def test_what_comes_with_a_period_is_no_noise() -> None:
    """Checkpoints every tenth step: blocks of whole periods all hold as many."""

    def run(name: str, seed: int, period: int) -> Any:
        plan = noisy_plan(seed, 200)
        saving = [{**s, "checkpoint": 200.0} if n % period == 3 else s for n, s in enumerate(plan)]
        return load(name, recording({0: saving}), place=seed)

    pair = pair_of(run("a", 1, 10), run("b", 2, 20), between_runs=0.005)
    assert pair.change == "improved" and pair.speed is not None
    assert pair.speed.lo < 120 / 110 < pair.speed.hi and pair.speed.hi - pair.speed.lo < 0.12


def test_what_runs_differ_by_in_any_case_widens_it_too() -> None:
    runs = noisy_run("a", 1), noisy_run("b", 2, scale=1.08)
    assert pair_of(*runs, between_runs=0.005).change == "regressed"
    assert pair_of(*runs, between_runs=0.05).change == "same"


@pytest.mark.parametrize("phase", ["gap", "checkpoint", "input_wait"])
def test_a_tenth_more_beside_computing_is_found_though_runs_compute_at_different_speeds(phase: str) -> None:
    """The whole step cannot tell: runs of the job differ by that much."""
    longer = {phase: step().get(phase, 0.0) + 10.0}
    pairs = [
        pair_of(noisy_run("a", 2 * seed, own_noise=0.05), noisy_run("b", 2 * seed + 1, own_noise=0.05, **longer))
        for seed in range(12)
    ]
    found = [pair for pair in pairs if pair.change == "regressed"]
    assert len(found) >= 9
    assert all("time between steps alone" in pair.why for pair in found if pair.speed and pair.speed.lo > 0.85)
    assert all(pair.speed and 0.8 < pair.speed.value < 0.99 for pair in found)
    assert not any(pair.change == "improved" for pair in pairs)


def test_what_computing_wins_back_is_no_regression() -> None:
    moved = noisy_run("b", 2, gap=10, backward=step()["backward"] - 25)
    assert pair_of(noisy_run("a", 1), moved).change != "regressed"


def test_beside_neighbours_a_longer_wait_for_input_proves_nothing_and_a_longer_gap_does() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 2.0), (20, 2.0)),
        ("cpu.busy_s", "host"): series((0, 0.0), (20, 16.0)),
        ("job.cpu_s", "job"): series((0, 0.0), (20, 10.0)),
    }

    def beside(name: str, seed: int, **given: float) -> Any:
        return load(name, replace(noisy_recording(seed, **given), samples=samples), place=seed)

    base = beside("a", 1)
    assert pair_of(base, beside("b", 2, input_wait=step()["input_wait"] + 12)).change == "same"
    assert pair_of(base, beside("b", 2, gap=12)).change == "regressed"


def test_the_same_two_runs_always_compare_alike() -> None:
    assert pair_of(noisy_run("a", 1), noisy_run("b", 2)) == pair_of(noisy_run("a", 1), noisy_run("b", 2))


def test_no_difference_found_says_how_small_one_could_hide() -> None:
    assert re.search(r"one below \d+ % might not", pair_of(noisy_run("a", 1), noisy_run("b", 2)).why)
    blind = pair_of(noisy_run("a", 1), noisy_run("b", 2), between_runs=0.4)
    assert re.search(r"one below a factor of [\d.]+ might not", blind.why)


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


def test_what_a_step_of_more_ranks_takes_longer_for_is_told() -> None:
    alone = load("one", noisy_recording(1), place=1)
    together = load("two", recording(dict.fromkeys(range(2), noisy_plan(2, 120)), wire_ms=40), place=2)
    (wire,) = [delta for delta in compare((alone, together)).pairs[0].phases if delta.phase == "comm_exposed"]
    assert wire.base_s == 0 and wire.other_s == pytest.approx(0.04, rel=0.05) and wire.delta_s.lo > 0.03


def test_another_batch_size_is_compared_by_samples_with_a_warning() -> None:
    pair = pair_of(noisy_run("a", 1), noisy_run("b", 2, scale=1.5, samples=16))
    assert pair.change == "improved" and pair.speed is not None
    assert pair.speed.value == pytest.approx(2 / 1.5, rel=0.06)
    assert any("batch size 8 → 16" in note for note in pair.notes) and not pair.phases


@pytest.mark.parametrize(
    ("facts", "argv", "note"),
    [
        (about(optimizer={"parameters": 161}), (), "other parameters"),
        (about(optimizer={"parameters": 62}), ("--model", "vgg19"), "--model not given → vgg19"),
    ],
)
def test_another_model_is_warned_of(facts: dict[str, Any], argv: tuple[str, ...], note: str) -> None:
    base = noisy_run("a", 1, facts=about(optimizer={"parameters": 62}))
    other = noisy_run("b", 2, facts=facts, meta={"argv": ("python", "train.py", *argv)})
    assert any(note in told for told in pair_of(base, other).notes)


def test_a_model_under_ddp_is_the_model_without() -> None:
    ddp = about(ddp=[{"total_parameter_size_bytes": 5}], optimizer={"parameters": 62})
    alone = noisy_run("a", 1, facts=about(optimizer={"parameters": 62}))
    assert pair_of(alone, noisy_run("b", 2, ranks=2, facts=ddp)).notes == ()
    larger = about(ddp=[{"total_parameter_size_bytes": 6}], optimizer={"parameters": 62})
    pair = pair_of(noisy_run("b", 2, ranks=2, facts=ddp), noisy_run("c", 3, ranks=2, facts=larger))
    assert any("other parameters" in note for note in pair.notes)


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


def test_windows_that_retention_left_count_like_the_steps_in_them() -> None:
    made = noisy_recording(2, steps=400)
    windows = replace(made, steps={0: folded(made.steps[0], 40, 300)})
    pair = pair_of(load("raw", made), load("windows", windows, place=1))
    assert pair.change == "same" and pair.speed is not None
    assert pair.speed.value == pytest.approx(1.0, abs=0.01)


def test_changed_facts_are_listed_and_passing_ones_are_not() -> None:
    argv = ("torchrun", "--nproc_per_node=2", "train.py", "--lr", "0.1", "--amp")
    other = about(torch="2.10.0", pid=2, loaders=[{**LOADER, "num_workers": 4, "line": 9}], gc={"enabled": True})
    environment = {"variables": {"OMP_NUM_THREADS": "4", "MASTER_PORT": "1"}, "cpu_model": "EPYC"}
    pair = pair_of(
        noisy_run("a", 1, facts=about(), meta={"argv": argv}),
        noisy_run("b", 2, facts=other, meta={"argv": (*argv[:4], "0.2"), "environment": environment}),
    )
    told = {(c.group, c.name): (c.base, c.other) for c in pair.facts}
    assert told == {
        ("arguments", "--lr"): ("0.1", "0.2"),
        ("arguments", "--amp"): ("yes", None),
        ("loader", "num_workers"): ("0", "4"),
        ("versions", "torch"): ("2.9.0", "2.10.0"),
        ("environment", "OMP_NUM_THREADS"): (None, "4"),
        ("machine", "cpu_model"): (None, "EPYC"),
    }


def test_how_often_ranks_talked_is_no_difference_and_how_they_are_connected_is() -> None:
    def run(name: str, calls: int, transport: str) -> Any:
        sites = [
            {"kind": "all_reduce", "calls": calls, "bytes": calls, "ns": calls},
            {"kind": "barrier", "calls": calls},
        ]
        loaded = noisy_run(name, calls, facts=about(collectives=sites))
        said = {"transports": {transport: calls}, "channels": 8, "ranks": calls, "nodes": 1}
        return replace(loaded, report=replace(loaded.report, facts={**loaded.report.facts, "nccl": said}))

    pair = pair_of(run("a", 1, "P2P"), run("b", 2, "NET/Socket"))
    assert [(c.group, c.name, c.base, c.other) for c in pair.facts] == [("NCCL", "transports", "P2P", "NET/Socket")]


def test_arguments_are_taken_apart_as_a_shell_user_means_them() -> None:
    assert options(["/x/python", "-u", "train.py", "--lr=0.1", "--steps", "5", "-v", "--shift", "-3", "a", "b"]) == {
        "program": "python",
        "-u": "train.py",
        "--lr": "0.1",
        "--steps": "5",
        "-v": "yes",
        "--shift": "yes",
        "argument 1": "-3",
        "argument 2": "a",
        "argument 3": "b",
    }


def finding(rule: str, severity: Any, seconds: float) -> Finding:
    return Finding(rule, rule.lower(), severity, 0.9, seconds)


def test_findings_come_and_go_small_ones_unmentioned() -> None:
    old, new = noisy_run("a", 1), noisy_run("b", 2)
    was = (finding("DAT003", "high", 0.02), finding("COM001", "medium", 0.01), finding("LOP004", "low", 0.001))
    now = (finding("COM001", "low", 0.002), finding("CPU003", "critical", 0.03))
    base = replace(old, report=replace(old.report, findings=was))
    other = replace(new, report=replace(new.report, findings=now))
    told = [(c.rule, c.state, c.base_s, c.other_s) for c in pair_of(base, other).findings]
    assert told == [
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
    luck = {**steps.values, ("step.system_s", "rank:0"): 0.015}
    assert pair_of(noisy_run("a", 1), faulty, between_runs=0.01).change == "regressed"
    excused = pair_of(noisy_run("a", 1), replace(faulty, analysis=replace(steps, values=luck)), between_runs=0.01)
    assert excused.change == "same" and any("page faults" in note for note in excused.notes)


def test_others_on_the_machine_are_told_and_widen_the_interval() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 2.0), (20, 2.0)),
        ("cpu.busy_s", "host"): series((0, 0.0), (20, 30.0)),
        ("job.cpu_s", "job"): series((0, 0.0), (20, 10.0)),
    }
    beside = load("b", replace(noisy_recording(2), samples=samples), place=1)
    pair = pair_of(noisy_run("a", 1), beside)
    assert any("other processes kept 1 cores busy during b" in note for note in pair.notes)
    assert pair.speed is not None and pair.speed.lo < 0.5


def test_the_document_is_plain_and_names_its_schema() -> None:
    made: Comparison = compare((noisy_run("a", 1), noisy_run("b", 2, ranks=2)), max_regression=0.1)
    document = made.as_json()
    assert document["schema"] == "rn50-advisor/compare/1"
    assert list(document) == ["schema", "baseline", "runs", "pairs", "method", "gate"]
    assert set(document["runs"][1]["efficiency"]) == {"value", "lo", "hi"}
    assert document["pairs"][0]["base"] == 0 and document["gate"]["max_regression"] == 0.1
