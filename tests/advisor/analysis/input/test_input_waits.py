"""The part of the input wait that goes to drawing indices, and the rest for making batches."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import epoch_starts, plan, recording, spans
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 0, "batch_size": 8}
WAIT_MS, DRAWN_S = 60.0, 0.05


def drawing(every: int = 5, timed: bool = True, starts: int = 1000, **fetch: float) -> Analysis:
    """Thirty steps wait 60 ms; each `every`-th is clocked, and of its wait 50 ms go to the indices."""
    clocked = {"flags": FLAG_CLOCKED, "fetches": 1, "fetch": 8, **fetch}
    own = [{**s, "input_wait": WAIT_MS, **(clocked if n % every == 0 else {})} for n, s in enumerate(plan(30))]
    starts_s = epoch_starts(own, starts)
    for n in range(0, 30, starts):
        starts_s[n]["flags"] = starts_s[n]["flags"] | (FLAG_CLOCKED if n % every == 0 else 0)
    rows = [("index", n, 0.1 * n, 0.1 * n + DRAWN_S) for n in range(0, 30, every)]
    facts: dict[int, dict[str, Any]] = {100: {"loaders": [TRAIN], "indices_timed": timed}}
    return analyse(recording({0: starts_s}, facts=facts, spans={0: spans(rows)}))


def test_drawing_indices_is_a_part_of_the_wait_of_its_own() -> None:
    analysis = drawing()
    assert analysis.value("step.index_s", 0) == pytest.approx(DRAWN_S)
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(WAIT_MS / 1000 - DRAWN_S)


def test_a_batch_made_in_a_moment_in_process_is_seen_beside_a_slow_sampler() -> None:
    analysis = drawing()
    assert analysis.value("fetch.wall_s", 0) == pytest.approx(0.008)
    assert analysis.value("loader.workers", 0) == 0.0


def test_steps_whose_spans_are_gone_are_not_taken_for_steps_that_drew_nothing() -> None:
    steps = plan(3000, input_wait=WAIT_MS, flags=FLAG_CLOCKED)
    rows = [("index", n, 0.1 * n, 0.1 * n + DRAWN_S) for n in range(2000, 3000)]
    facts: dict[int, dict[str, Any]] = {100: {"loaders": [TRAIN], "indices_timed": True}}
    analysis = analyse(recording({0: steps}, facts=facts, spans={0: spans(rows)}))
    assert analysis.value("step.index_s", 0) == pytest.approx(DRAWN_S)


def test_a_recorder_that_did_not_look_measured_nothing() -> None:
    analysis = drawing(timed=False)
    assert not analysis.has("step.index_s")
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(WAIT_MS / 1000)
    assert analysis.missing["step.index_s"]


def test_the_order_of_an_epoch_is_drawn_in_its_first_fetch_and_no_part_of_a_usual_one() -> None:
    analysis = drawing(starts=10)
    assert analysis.value("step.index_s", 0) == pytest.approx(DRAWN_S), "of the clocked steps that begin no epoch"


def test_more_than_the_loop_waited_is_hidden_behind_what_it_computed() -> None:
    analysis = drawing(every=1, starts=1)
    assert analysis.value("step.index_s", 0) == pytest.approx(DRAWN_S)
    assert analysis.value("step.epoch_start_s", 0) == 0.0, "each step begins an epoch: nothing was awaited of workers"


def test_a_forecast_for_no_workers_keeps_what_the_sampler_takes() -> None:
    analysis = drawing()
    assert analysis.workers is not None and analysis.forecast is not None
    assert analysis.workers.feeds[0].index_s == pytest.approx(DRAWN_S)
    step_s = analysis.value("step.time_s")
    best_s, _ = analysis.forecast.step_s(2)
    assert best_s > step_s - (WAIT_MS / 1000 - DRAWN_S) - 0.012, "two workers cannot draw the indices"
