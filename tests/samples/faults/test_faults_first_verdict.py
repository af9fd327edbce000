"""When the right verdict came: replayed from the recording, counted from the fault, never before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples.faults.first_verdict import first_right_verdict, onset_ns, pace_s, samples_per_s, steps_until
from samples.faults.scenario import Truth

from recordings import FIRST_STEP_NS, plan, recording

SLOW_RANK = Truth(roots=("CMP007",), ranks=(1,))
HEALTHY = Truth()


def test_a_fault_from_the_start_is_seen_within_seconds_of_the_first_step() -> None:
    verdict = first_right_verdict(recording({0: plan(100), 1: plan(100, forward=130)}), SLOW_RANK)
    assert verdict is not None
    assert 2 < verdict.seconds < 8  # the first step starts after 2 s
    assert 5 <= verdict.steps < 40


def test_a_late_fault_counts_from_its_own_start() -> None:
    made = recording({0: plan(200), 1: [*plan(60, forward=30), *plan(140, forward=330)]})
    verdict = first_right_verdict(made, SLOW_RANK, onset_step=60)
    assert verdict is not None
    assert 0 < verdict.seconds < 40
    assert onset_ns(made, 60) == int(made.steps[0]["t_start_ns"][60])


def test_a_verdict_that_never_comes_has_no_time() -> None:
    assert first_right_verdict(recording({0: plan(60), 1: plan(60)}), SLOW_RANK) is None


def test_a_job_that_made_no_step_is_judged_at_its_end() -> None:
    assert first_right_verdict(recording({}), HEALTHY) is None


def test_what_a_rank_did_after_its_last_step_is_no_step() -> None:
    made = recording({0: plan(30)}, tail_ms={"gap": 500})
    assert steps_until(made, made.meta.last_ns) == 30


def test_speed_is_all_ranks_samples_over_the_clock() -> None:
    made = recording({0: plan(50), 1: plan(50)})
    assert samples_per_s(made) == pytest.approx(2 * 8 / 0.1, rel=0.01)  # two ranks, 8 samples, 100 ms


def test_speed_counts_what_lies_between_the_steps() -> None:
    steps = plan(50)
    for number in range(0, 50, 10):
        steps[number] = {**steps[number], "checkpoint": 1000}
    assert samples_per_s(recording({0: steps})) == pytest.approx(8 / 0.2, rel=0.05)


def test_speed_under_a_late_fault_is_that_of_the_steps_from_it_on() -> None:
    made = recording({0: [*plan(60, forward=30), *plan(60, forward=130)]})
    assert samples_per_s(made, 60) == pytest.approx(8 / 0.2, rel=0.01)
    assert samples_per_s(made, 118) is None


def test_too_few_steps_have_no_speed() -> None:
    assert samples_per_s(recording({0: plan(5)})) is None


def test_pace_is_that_of_the_usual_step_and_of_the_phases_asked_for() -> None:
    stalled = plan(60, forward=20, backward=40)
    stalled[30] = {**stalled[30], "forward": 500}
    made = recording({0: stalled, 1: plan(60, forward=30, backward=60)}, ddp=False)
    assert pace_s(made, ("forward",)) == pytest.approx(0.025)
    assert pace_s(made, ("forward", "backward")) == pytest.approx(0.075)
    late = recording({0: [*plan(60, forward=20), *plan(60, forward=30)]})
    assert pace_s(late, ("forward",), 60) == pytest.approx(0.03)
    assert pace_s(late, ("forward",), 118) is None and pace_s(recording({}), ("forward",)) is None


def test_a_fault_in_a_first_step_that_never_ended_counts_from_where_the_others_stand_in_it() -> None:
    made = replace(recording({}), positions={0: ("backward", 0, FIRST_STEP_NS), 2: ("backward", 0, FIRST_STEP_NS + 5)})
    assert onset_ns(made, 1) == FIRST_STEP_NS
    assert onset_ns(made, 0) == onset_ns(recording({}), 1) == made.meta.started_ns
