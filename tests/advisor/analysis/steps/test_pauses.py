"""Pauses of a step: garbage collections, and compilations after the first steps, with what they take."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import MS, plan, recording, spans, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.pauses import WARM_UP_STEPS
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import COMPILATIONS_MAX


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


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_the_share_of_long_collections_is_that_of_their_spans(share: float) -> None:
    run = recording({0: collecting(3, 0)})
    lines = spans_between(run, 0)
    lines["t_start_ns"] = lines["t_end_ns"] - round(share * 30 * MS)
    analysis = analyse(recording({0: collecting(3, 0)}, spans={0: lines} if share else {}))
    assert analysis.get("gc.long_share", 0) == pytest.approx(share, abs=0.001)


def test_a_collection_between_steps_delays_the_next_all_reduce() -> None:
    run = recording({0: collecting(4, 0, "gap"), 1: plan(60)})
    made = recording({0: collecting(4, 0, "gap"), 1: plan(60)}, spans={0: spans_between(run, 0)})
    assert lost(analyse(made)) == pytest.approx(0.0075, rel=0.1)
    assert analyse(made).by_rank("gc.between_s") == pytest.approx({0: 0.0075, 1: 0.0}, rel=0.1)


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


STEPS = 150


def values(*begun_in: int, took_ns: int = 30_000_000) -> dict[str, float]:
    """Measures of a run in which dynamo compiled during these steps."""
    bare = recording({0: plan(STEPS)})
    rows = all_steps(bare)[0]
    middle = {
        int(number): int((a + b) // 2) for number, a, b in zip(rows.step, rows.start_ns, rows.end_ns, strict=True)
    }
    compilations = [{"began_ns": middle[step], "took_ns": took_ns, "reason": ""} for step in begun_in]
    found = analyse(
        recording({0: plan(STEPS)}, facts={100: {"compilations": compilations}} if compilations else {})
    ).values
    return {name: value for (name, scope), value in found.items() if scope == 0 and name.startswith("compile.")}


def test_only_what_is_compiled_after_the_first_steps_counts() -> None:
    found = values(3, 20, WARM_UP_STEPS + 10, WARM_UP_STEPS + 30)
    assert found["compile.late"] == 2
    assert found["compile.late_s"] == pytest.approx(2 * 0.03 / (STEPS - WARM_UP_STEPS), rel=0.1)


def test_a_job_that_compiles_in_its_first_steps_has_none_late() -> None:
    assert values(3, 20) == {"compile.late": 0.0, "compile.late_s": 0.0}


def test_where_a_rank_kept_the_latest_alone_only_the_steps_since_then_count() -> None:
    found = values(*range(STEPS - COMPILATIONS_MAX, STEPS))
    assert found["compile.late"] == COMPILATIONS_MAX
    assert found["compile.late_s"] == pytest.approx(0.03, rel=0.05), "one in each of these steps, not in each of all"


def test_without_a_compilation_nothing_is_measured() -> None:
    assert values() == {}
