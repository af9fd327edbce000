"""Verdicts on runs of which only the first steps were seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import plan, recording, running, spans
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.verdict.diagnose import diagnose

STEP_S = 0.1
MIND = {"input_wait": 5, "forward": 20, "backward": 20, "optimizer": 5, "gap": 50}  # LOP004, as far as these steps go


def seen(steps: int, *, tail: dict[str, float], runs: tuple[Any, ...] = (), counts: tuple[int, ...] = ()) -> Recording:
    """So many steps of 0.1 s that pause for half of it, then a tail (ms by phase); `runs`: spans as (label, step, begin, end)."""
    made = recording({0: plan(steps, **MIND)}, tail_ms=tail)
    end = int(made.steps[0]["t_end_ns"][-1])
    made = replace(made, meta=replace(made.meta, last_ns=end, ended_ns=end))
    return replace(made, spans={0: spans(runs, counts)}) if runs else made


def replayed(steps: int, batches: int = 738, seconds: float = 60.0) -> Recording:
    """After the steps a graph is replayed over so many batches: told of as they became more."""
    began = steps * STEP_S
    runs = tuple(("unseen", steps, began, began + seconds * part) for part in (0.25, 0.5, 1.0))
    counts = (batches // 4, batches // 2, batches)
    return seen(steps, tail={"forward": 950 * seconds, "input_wait": 50 * seconds}, runs=runs, counts=counts)


def test_a_dozen_steps_do_not_speak_for_what_was_fetched_and_not_seen_trained_on() -> None:
    report = diagnose(replayed(12))
    assert report.verdict.state == "inconclusive" and report.verdict.rule is None
    assert "738 batches were fetched and not seen trained on" in report.verdict.summary
    assert "the 12 steps seen took 1.20 s of the" in report.verdict.summary
    assert "Tensor.backward()" in report.verdict.summary
    assert {finding.rule for finding in report.findings} == {"LOP004"} and all(
        f.saving is None for f in report.findings
    )
    assert report.as_json()["verdict"]["state"] == "inconclusive"


@pytest.mark.parametrize("steps", [3, 12, 200, 600])
def test_however_many_they_are_as_long_as_they_are_the_smaller_part(steps: int) -> None:
    assert diagnose(replayed(steps)).verdict.state == ("inconclusive" if steps * STEP_S <= 60 else "bottleneck")


def test_a_job_that_still_runs_is_told_as_far_as_it_has_come() -> None:
    made = running(replayed(12))
    rows = made.steps[0]
    assert diagnose(replace(made, steps={0: rows[:-1]})).verdict.state == "inconclusive"


def test_an_evaluation_after_training_is_none_of_it() -> None:
    evaluation = seen(12, tail={"evaluation": 60_000}, runs=(("evaluation", 12, 1.2, 61.2),))
    report = diagnose(evaluation)
    assert report.verdict.rule == "LOP004" and "no backward pass was seen" not in report.verdict.summary


def test_batches_before_the_first_step_are_not_training_that_was_missed() -> None:
    made = seen(30, tail={"gap": 10}, runs=(("unseen", 0, -60.0, 0.05), ("skipped", 0, -30.0, 0.0)), counts=(500, 100))
    coverage = analyse(made).coverage
    assert coverage is not None and coverage.unseen_batches == 0
    assert diagnose(made).verdict.rule == "LOP004"


@pytest.mark.parametrize(
    ("steps", "after_s", "state"), [(12, 60, "inconclusive"), (12, 2, "bottleneck"), (200, 600, "bottleneck")]
)
def test_a_few_steps_do_not_speak_for_a_long_time_without_any_mark(steps: int, after_s: float, state: str) -> None:
    """A graph that is replayed on one batch, a subprocess that trains; after many steps it may be an upload as well."""
    verdict = diagnose(seen(steps, tail={"gap": 1000 * after_s})).verdict
    assert verdict.state == state
    assert ("no backward pass was seen" in verdict.summary) == (state == "bottleneck")


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
