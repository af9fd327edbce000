"""Start-up: from the job's start until its first step was done, and where the time went."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, STARTED_NS, plan, recording, step
from rn50_advisor.advisor.analysis.steps.seen_training import start_values
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.recording import Recording

BEFORE_S = (FIRST_STEP_NS - STARTED_NS) / 1e9


def started(made: Recording) -> dict[str, float]:
    return {name: value for (name, scope), value in start_values(made, all_steps(made)).items() if scope == JOB}


def test_a_usual_step_is_no_start_up() -> None:
    assert started(recording({0: plan(30)})) == {
        "start.before_s": BEFORE_S,
        "start.fetch_s": 0.0,
        "start.first_step_s": 0.0,
        "start.total_s": BEFORE_S,
    }


@pytest.mark.parametrize(
    ("first", "fetch_s", "step_s"),
    [
        pytest.param({"input_wait": 5010}, 5.0, 0.0, id="workers start"),
        pytest.param({"forward": 7030}, 0.0, 7.0, id="compilation"),
        pytest.param({"input_wait": 1010, "backward": 2050}, 1.0, 2.0, id="both"),
        pytest.param({"evaluation": 9000}, 0.0, 0.0, id="an evaluation in the first step is its own matter"),
    ],
)
def test_what_the_first_step_takes_beyond_a_usual_one_counts(
    first: dict[str, Any], fetch_s: float, step_s: float
) -> None:
    found = started(recording({0: [step(**first), *plan(30)]}))
    assert found["start.fetch_s"] == pytest.approx(fetch_s)
    assert found["start.first_step_s"] == pytest.approx(step_s)
    assert found["start.total_s"] == pytest.approx(BEFORE_S + fetch_s + step_s)


def test_the_slowest_rank_to_start_counts() -> None:
    made = recording({0: plan(30), 1: [step(input_wait=4010), *plan(29)]}, ddp=False)
    assert started(made)["start.fetch_s"] == pytest.approx(4.0)


def test_without_two_steps_there_is_no_saying() -> None:
    assert started(recording({0: plan(1)})) == {}
    assert started(recording({})) == {}
