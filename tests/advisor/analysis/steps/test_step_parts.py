"""The step in numbers, and the time that the run spends outside its steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.attribution import account
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.analysis.steps.step_parts import UNCLOCKED, duration_s, run_values, step_values, throughput
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER, FLAG_SKIPPED_UPDATE


def test_accumulated_micro_batches_are_one_step() -> None:
    accumulating = plan(30, micro_batches=4, samples=32, backward=200, flags=FLAG_SKIPPED_UPDATE)
    analysis = analyse(recording({0: accumulating}))
    assert analysis.value("step.samples") == 32.0
    assert analysis.throughput.samples_per_s == pytest.approx(32 / 0.25)


def test_a_loop_without_a_loader_says_so() -> None:
    analysis = analyse(recording({0: plan(30, flags=FLAG_NO_LOADER, input_wait=0)}))
    assert not analysis.has("step.input_wait_s") and not analysis.has("step.gap_s")
    assert "do not come from torch's loaders" in analysis.missing["step.input_wait_s"]
    assert analysis.value("step.compute_s", 0) == pytest.approx(0.06), "without what may be a fetch"
    assert [c.samples_per_s for c in analysis.capacities if c.stage == "compute"] == [None]
    assert "forward" not in analysis.budget.critical
    assert analysis.budget.critical["input_or_forward"] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("gaps_ms", "early_s"),
    [
        ([5 + n / 10 for n in range(200)], 0.0075),
        ([5 + n / 10 for n in range(70)], None),  # too few to say so
        ([9.0] * 200, None),
        ([5 + (n % 50) for n in range(200)], None),
        ([25 - n / 10 for n in range(200)], None),
    ],
)
def test_a_gap_that_grows_from_quarter_to_quarter(gaps_ms: list[float], early_s: float | None) -> None:
    analysis = analyse(recording({0: [step(gap=ms) for ms in gaps_ms]}))
    assert analysis.get("step.early_gap_s", 0) == (None if early_s is None else pytest.approx(early_s, rel=0.1))
    assert analysis.has("step.late_gap_s") == (early_s is not None)


def test_evaluation_counts_for_the_run_with_what_follows_the_last_step() -> None:
    steps = [step(evaluation=900 if n % 10 == 9 else 0) for n in range(30)]
    inside = analyse(recording({0: steps})).value("run.evaluation_share")
    assert inside == pytest.approx(2.7 / 5.7)
    after = analyse(recording({0: plan(30)}, tail_ms={"evaluation": 2000, "gap": 1000}))
    assert after.value("run.evaluation_share") == pytest.approx(2.0 / 6.0)
    assert after.value("step.evaluation_s", 0) == 0.0, "it belongs to no step"


def values(made: Recording, unclocked: frozenset[int] = frozenset()) -> Measured:
    steady = steady_steps(all_steps(made))
    return step_values(steady, account(steady, {}, made.comm, {}), None, unclocked)


def test_the_step_has_its_length_and_the_parts_of_each_rank() -> None:
    every = {"evaluation": 20, "checkpoint": 5, "gap": 7, "gc": 3, "run_delay": 4}
    found = values(recording({0: plan(), 1: plan(30, **every)}, wire_ms=5))
    of_rank = {name: value for (name, scope), value in found.items() if scope == 1}
    assert of_rank == pytest.approx(
        {
            "step.gap_s": 0.007,
            "step.longest_gap_s": 0.007,
            "step.longest_gap_share": 1 / 27,
            "step.compute_s": 0.090,
            "step.evaluation_s": 0.020,
            "step.checkpoint_s": 0.005,
            "step.own_s": 0.132,
            "step.gc_s": 0.003,
            "step.run_delay_s": 0.004,
            "step.samples": 8.0,
        }
    )
    assert (found["step.time_s", "job"], found["step.steady", "job"]) == (pytest.approx(0.137), 27)


def test_a_clock_that_the_kernel_does_not_keep_is_no_measurement() -> None:
    found = values(recording({0: plan(30, run_delay=0), 1: plan(30, run_delay=4)}), frozenset({0}))
    assert found.by_rank("step.run_delay_s") == {1: pytest.approx(0.004)}
    assert found.missing["step.run_delay_s", 0] == UNCLOCKED


def test_time_in_the_kernel_is_that_of_steps_with_clocks() -> None:
    steps = [step(flags=FLAG_CLOCKED if n % 4 == 0 else 0, compute_system=8 if n % 4 == 0 else 0) for n in range(40)]
    assert values(recording({0: steps})).by_rank("step.system_s") == {0: pytest.approx(0.008)}
    assert values(recording({0: plan()})).by_rank("step.system_s") == {}


def test_samples_of_the_job_are_the_mean_of_ranks_that_count_them() -> None:
    found = values(recording({0: plan(30, samples=8), 1: plan(30, samples=24), 2: plan(30, samples=0)}, ddp=False))
    assert found["step.samples", "job"] == 16.0 and found.by_rank("step.samples") == {0: 8.0, 1: 24.0}


def test_throughput_is_of_all_ranks() -> None:
    steady = steady_steps(all_steps(recording({0: plan(), 1: plan()})))
    accounts = account(steady, {}, {}, {})
    found = throughput(accounts, steady, 8.0)
    assert (found.samples_per_s, found.steps_per_s, found.world_size) == (pytest.approx(160), pytest.approx(10), 2)
    assert throughput(accounts, steady, None).samples_per_s is None
    assert throughput(None, {}, None).steps_per_s is None


def test_a_run_lasts_until_its_end_or_until_now() -> None:
    made = recording({0: plan()})
    assert duration_s(made) == pytest.approx(5.0)  # two seconds before the first step
    going = replace(made, meta=replace(made.meta, ended_ns=None, last_ns=made.meta.last_ns + 1_000_000_000))
    assert duration_s(going) == pytest.approx(6.0)
    assert run_values(recording({}), {}) == {("run.duration_s", "job"): pytest.approx(2.0)}
