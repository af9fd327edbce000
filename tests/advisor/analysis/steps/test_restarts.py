"""Ranks that were started again in the same run: whose steps are the typical ones, and what is laid beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import SECOND, gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.run_comparison import load


def one_after_another(*starts: Recording) -> Recording:
    """Each begins ten minutes after the one before, with the same numbers of ranks and steps."""
    made: dict[str, dict[int, Any]] = {"steps": {}, "comm": {}, "gpu_steps": {}}
    for number, start in enumerate(starts):
        for name, tables in made.items():
            for rank, rows in getattr(start, name).items():
                later = rows.copy()
                for column in ("t_start_ns", "t_end_ns", "compute_end_ns", "comm_end_ns"):
                    if column in (later.dtype.names or ()):
                        later[column] += number * 600 * SECOND
                tables[rank] = np.concatenate([tables[rank], later]) if rank in tables else later
    return replace(starts[0], steps=made["steps"], comm=made["comm"], gpu_steps=made["gpu_steps"])


def job(steps: int, *, ranks: int = 2, wire_ms: float = 5, **given: float) -> Recording:
    return recording({rank: plan(steps, **given) for rank in range(ranks)}, wire_ms=wire_ms)


def test_typical_steps_are_those_of_the_last_start() -> None:
    analysis = analyse(one_after_another(job(200), job(60, forward=80, wire_ms=20)))
    assert analysis.value("step.time_s") == pytest.approx(0.170)
    assert analysis.value("comm.wire_s") == pytest.approx(0.020)
    assert analysis.step_time.steady_steps == 57
    assert sum(analysis.budget.critical.values()) == pytest.approx(0.170)


def test_a_long_earlier_start_is_preferred_to_one_with_hardly_a_step() -> None:
    analysis = analyse(one_after_another(job(200), job(6, forward=80, wire_ms=20)))
    assert analysis.value("step.time_s") == pytest.approx(0.105)
    assert analysis.value("comm.wire_s") == pytest.approx(0.005)


def test_a_rank_that_was_part_of_another_start_only_is_left_out() -> None:
    made = one_after_another(job(50, ranks=4), job(50, ranks=2), job(50, ranks=1, forward=80))
    assert list(steady_steps(all_steps(made))) == [0]
    assert analyse(made).value("step.time_s") == pytest.approx(0.150)


def test_ranks_that_began_late_or_ended_early_are_no_other_start() -> None:
    late = recording({0: plan(80), 1: plan(50)}, wire_ms=5)
    assert sorted(steady_steps(all_steps(late))) == [0, 1]


def test_the_streams_times_are_of_the_same_start() -> None:
    host = {"input_wait": 60, "forward": 5, "backward": 5, "optimizer": 30}
    starts = [
        recording(
            {0: plan(40, **host)},
            gpu_steps={0: gpu_steps([{"input_wait": 1, "forward": ms, "backward": 99 - ms}] * 40)},
        )
        for ms in (20, 60)
    ]
    assert analyse(one_after_another(*starts)).budget.per_rank[0]["forward"] == pytest.approx(0.060)


def test_two_starts_can_be_compared() -> None:
    run = load("two", one_after_another(job(200), job(60, forward=80)), place=0)
    assert run.blocks is not None and run.blocks.step_s == pytest.approx(0.155)


def test_the_course_of_the_run_shows_its_starts_and_which_one_counts() -> None:
    shown = [s for s in analyse(one_after_another(job(200), job(60))).segments if s.kind == "start"]
    assert [(s.first_step, s.last_step) for s in shown] == [(0, 199), (0, 59)]
    assert shown[1].start_s == pytest.approx(602.0)
    assert [s.label.partition(":")[0] for s in shown] == ["start 1 of 2", "start 2 of 2"]
    assert ["typical" in s.label for s in shown] == [False, True]
    assert not [s for s in analyse(job(60)).segments if s.kind == "start"]
