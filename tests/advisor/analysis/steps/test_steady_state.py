"""Which steps count: warm-up, steps that all ranks have, folded rows."""

from __future__ import annotations

import numpy as np
import pytest

from aged_runs import aged
from recordings import folded, plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, all_steps, steady_steps, tails, warm_up_rows
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.step_folding import COLUMNS
from rn50_advisor.probes.rank.layout import FLAG_NO_LOADER, FLAG_TRACED


def slow(count: int, forward: float = 300) -> list[dict[str, float]]:
    return plan(count, forward=forward)


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        pytest.param(plan(1), 1, id="a single step is all warm-up"),
        pytest.param(plan(2), 1, id="the first always is"),
        pytest.param(plan(19), 1, id="a short run leaves out one"),
        pytest.param(plan(20), 3, id="a longer one leaves out three"),
        pytest.param(slow(2) + plan(8), 2, id="as long as steps are slow"),
        pytest.param(slow(6) + plan(24), 6, id="in a longer run too"),
        pytest.param(slow(1, forward=80) + plan(8), 1, id="exactly one and a half times is not slow"),
        pytest.param(slow(2, forward=79) + plan(8), 1, id="nor is less"),
        pytest.param(slow(2, forward=81) + plan(8), 2, id="more is"),
        pytest.param(slow(1) + plan(3) + slow(3) + plan(15), 3, id="it ends with the first usual step"),
        pytest.param(slow(14) + plan(10), 12, id="never more than half of the run"),
        pytest.param(plan(2) + plan(1, evaluation=900) + plan(2), 1, id="an evaluation is not warming up"),
        pytest.param(plan(1) + plan(1, checkpoint=900) + plan(4), 1, id="nor is a checkpoint"),
    ],
)
def test_slow_steps_at_the_start_are_warm_up(steps: list[dict[str, float]], rows: int) -> None:
    own = all_steps(recording({0: steps}))[0]
    assert warm_up_rows(own) == rows
    kept = steady_steps({0: own})
    assert (kept[0].step[0] if kept else None) == (rows if rows < len(steps) else None)


def test_all_ranks_keep_the_same_steps() -> None:
    everything = all_steps(recording({0: slow(5) + plan(25), 1: plan(28)}))
    steady = steady_steps(everything)
    assert [(int(s.step[0]), int(s.step[-1])) for s in steady.values()] == [(5, 27), (5, 27)]


@pytest.mark.parametrize("others", [0, 1])
def test_without_a_steady_step_of_every_rank_there_is_none(others: int) -> None:
    everything = all_steps(recording({0: plan(30), 1: plan(others)}))
    kept = steady_steps(everything)
    assert (0 in kept) == (others == 0)  # a rank that never made a step keeps nobody from counting


def test_what_followed_the_last_step_is_none() -> None:
    run = recording({0: plan(10)}, tail_ms={"evaluation": 5000})
    assert all_steps(run)[0].step.tolist() == list(range(10))
    assert tails(run)[0].columns["evaluation"].tolist() == [5.0]
    assert analyse(run).step_time.steps == 10


def test_folded_rows_count_as_the_steps_they_hold() -> None:
    run = recording({0: plan(400, gc=3)})
    fewer = recording({0: plan(400, gc=3)}, steps={0: folded(run.steps[0], 10, 350)})
    own = all_steps(fewer)[0]
    assert own.step.size < 120 and own.count.sum() == 400
    assert own.per_step("gc") == pytest.approx(0.003)
    assert analyse(fewer).step_time.steady_steps == analyse(run).step_time.steady_steps == 397
    assert analyse(fewer).step_time.median_s == pytest.approx(0.1)


def test_a_loop_is_fed_if_a_loader_fed_most_of_its_steps() -> None:
    lonely = {**step(), "flags": FLAG_NO_LOADER}
    for lonely_steps, fed in ((5, False), (4, True)):
        own = all_steps(recording({0: [lonely] * lonely_steps + plan(10 - lonely_steps)}))[0]
        assert own.fed is fed


@pytest.mark.parametrize(("steps", "tail", "last"), [(30, True, 28), (30, False, 29), (19, True, 18)])
def test_the_step_in_which_a_job_breaks_out_of_its_loop_is_not_steady(steps: int, tail: bool, last: int) -> None:
    made = [*plan(steps - 1), step(gap=3000)]
    run = recording({0: made, 1: made}, tail_ms={"evaluation": 1} if tail else None)
    assert steady_steps(all_steps(run))[1].step[-1] == last
    assert analyse(run).step_time.steps == steps


def own(made: Recording, rank: int = 0) -> RankSteps:
    return all_steps(made)[rank]


def test_single_steps_among_folded_ones_are_no_sample() -> None:
    made = aged(recording({0: [step(gap=300 if n % 50 == 7 else 0) for n in range(500)]}), 100)
    rows = own(made)
    assert (rows.count[~rows.sample] == 1).sum() >= 8, "outliers stand alone"
    assert rows.sample.sum() == 100 and rows.sample[-100:].all()
    assert own(recording({0: plan(20)})).sample.all()


def test_steps_that_nodes_send_each_other_whole_are_a_sample_wherever_they_stand() -> None:
    rows = recording({0: plan(400)}).steps[0]
    parts = [
        part for first in range(0, 400, 100) for part in (rows[first : first + 12], rows[first + 12 : first + 100])
    ]
    sent = np.concatenate([part[list(COLUMNS)] if part.size == 12 else folded(part, 0, part.size) for part in parts])
    assert own(recording({0: plan(400)}, steps={0: sent})).sample.sum() == 48


def test_where_no_single_steps_stand_together_any_will_do() -> None:
    rows = recording({0: plan(60)}).steps[0]
    assert own(recording({0: plan(60)}, steps={0: folded(rows, 3, 57)})).sample.sum() == 6


def test_a_loop_is_fed_if_most_single_steps_were() -> None:
    """A row of several steps has the marks of each of them."""
    steps = [step(flags=FLAG_NO_LOADER if n % 4 == 0 else 0) for n in range(400)]
    assert own(recording({0: steps})).fed
    assert own(aged(recording({0: steps}), 20)).fed


@pytest.mark.parametrize(("steps", "left_out"), [(1, 0), (2, 0), (3, 1), (6, 1)])
def test_of_a_profilers_trace_only_the_step_in_which_the_profiler_starts_is_left_out(steps: int, left_out: int) -> None:
    traced = recording({0: plan(steps)})
    traced.steps[0]["flags"] |= FLAG_TRACED
    everything = all_steps(traced)
    assert warm_up_rows(everything[0]) == left_out
    assert steady_steps(everything)[0].step.size == steps - left_out
