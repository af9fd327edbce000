"""What garbage collections cost: on one rank its own, on several ranks whatever the others wait for."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import MS, plan, recording, spans, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Table


def collecting(every: int, offset: int, phase: str = "forward", steps: int = 60) -> list[dict[str, float]]:
    """Steps of 100 ms; each `every`-th is 30 ms longer in this phase, by a collection."""
    usual = step().get(phase, 0)
    return [step(**{phase: usual + 30, "gc": 30}) if n % every == offset else step() for n in range(steps)]


def spans_between(run: Recording, rank: int) -> Table:
    """A line for each collection of a rank, at the end of its step."""
    rows = [row for row in run.steps[rank] if row["gc_ns"]]
    made = spans([("gc", int(row["step"]), 0.0, 0.0) for row in rows])
    made["t_end_ns"] = [row["t_end_ns"] for row in rows]
    made["t_start_ns"] = made["t_end_ns"] - 30 * MS
    return made


def lost(analysis: Analysis) -> float | None:
    return analysis.get("gc.critical_s")


def test_one_rank_loses_what_it_collects() -> None:
    assert lost(analyse(recording({0: collecting(3, 0)}))) == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        pytest.param((0, 0), 0.010, id="all in the same step: once"),
        pytest.param((0, 1), 0.020, id="each in a step of its own: the sum"),
    ],
)
def test_ranks_lose_the_collections_that_the_others_wait_for(offsets: tuple[int, int], expected: float) -> None:
    run = recording({rank: collecting(3, offset) for rank, offset in enumerate(offsets)})
    analysis = analyse(run)
    assert lost(analysis) == pytest.approx(expected, rel=0.02)
    assert analysis.by_rank("step.gc_s") == pytest.approx({0: 0.010, 1: 0.010})


def test_a_collection_while_another_rank_takes_longer_costs_nothing() -> None:
    run = recording({0: collecting(3, 0), 1: plan(60, backward=90)})
    assert lost(analyse(run)) == pytest.approx(0.0)


def test_a_collection_between_steps_delays_the_next_all_reduce() -> None:
    run = recording({0: collecting(4, 0, "gap"), 1: plan(60)})
    told = recording({0: collecting(4, 0, "gap"), 1: plan(60)}, spans={0: spans_between(run, 0)})
    assert lost(analyse(told)) == pytest.approx(0.0075, rel=0.1)
    assert analyse(told).by_rank("gc.between_s") == pytest.approx({0: 0.0075, 1: 0.0}, rel=0.1)


def test_collections_inside_the_step_are_not_between_steps() -> None:
    run = recording({0: collecting(4, 0, "forward")})
    lines = spans_between(run, 0)
    lines["t_start_ns"] -= 60 * MS
    lines["t_end_ns"] -= 60 * MS
    assert analyse(recording({0: collecting(4, 0)}, spans={0: lines})).by_rank("gc.between_s") == {0: 0.0}


@pytest.mark.parametrize(
    ("pauses", "expected"), [((80, 70), 0.0), ((80, 70, 60), 0.060), ((80, 70, 60, 10, 10), 0.060)]
)
def test_a_pause_counts_once_it_came_three_times(pauses: tuple[float, ...], expected: float) -> None:
    rows: list[dict[str, Any]] = plan(40)
    for n, pause in enumerate(pauses):
        rows[10 + 4 * n] = step(gc=pause, forward=30 + pause)
    assert analyse(recording({0: rows})).by_rank("gc.repeated_pause_s") == pytest.approx({0: expected})
