"""The start-up until the first step was done, and how much of the training was seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, STARTED_NS, plan, recording, spans, step
from rn50_advisor.advisor.analysis.pipeline import analyse
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


MIND = {"input_wait": 5, "forward": 20, "backward": 20, "optimizer": 5, "gap": 50}  # LOP004, as far as these steps go


def test_of_several_ranks_the_one_that_was_seen_best_counts() -> None:
    """Rank 0 alone goes on, with whatever it is."""
    both = recording({0: plan(12, **MIND), 1: plan(12, **MIND)}, tail_ms={"gap": 10})
    rows = {0: both.steps[0].copy(), 1: both.steps[1]}
    rows[0]["gap_ns"][-1] = 60_000_000_000
    rows[0]["t_end_ns"][-1] = rows[0]["t_start_ns"][-1] + 60_000_000_000
    coverage = analyse(replace(both, steps=rows)).coverage
    assert coverage is not None and coverage.after_s < 1


def test_batches_thrown_away_are_part_of_the_start() -> None:
    steps = plan(30, **MIND)
    steps[0] = {**steps[0], "input_wait": 30_000}
    made = replace(recording({0: steps}), spans={0: spans([("skipped", 0, 0.0, 29.0)], [4000])})
    values = analyse(made).values
    assert values["start.skipped_s", "job"] == pytest.approx(29.0)
    assert values["start.fetch_s", "job"] == pytest.approx(1.0, abs=0.1)
