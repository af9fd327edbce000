"""The cost of starting an epoch, and the part of it that new workers cause."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import batches, epoch_starts, plan, recording, spans
from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.epochs import evaluation_start_values
from rn50_advisor.advisor.analysis.steps.steady_state import steady_steps
from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.measures.step_measures import STEP_EVALUATION_START_S
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH

TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}


def began(every: int = 10, steps: int = 30, first_ms: float = 410, workers: int = 2, **more: Any) -> Analysis:
    """Steps of 100 ms with 10 ms of waiting; the first of an epoch waits longer."""
    own = epoch_starts(plan(steps), every, input_wait=first_ms)
    return analyse(recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": workers}]}}, **more))


def start_of(epoch: int, every: int = 10, first_ms: float = 410) -> float:
    return epoch * (every * 0.1 + (first_ms - 10) / 1000)


def test_an_epoch_start_is_the_time_of_its_first_fetch_beyond_a_usual_one() -> None:
    analysis = began()
    assert analysis.value("epoch.starts", 0) == 2.0, "the first epoch began in the warm-up"
    assert analysis.value("epoch.start_s", 0) == pytest.approx(0.4)
    assert analysis.value("step.epoch_start_s", 0) == pytest.approx(0.8 / 27)


def test_workers_that_start_slow_down_what_the_first_step_computes() -> None:
    usual = plan(1)[0]
    own = epoch_starts(plan(30), 10, input_wait=410, forward=usual["forward"] + 15, backward=usual["backward"] + 5)
    facts = {100: {"loaders": [TRAIN]}}
    assert analyse(recording({0: own}, facts=facts)).value("epoch.start_compute_s", 0) == pytest.approx(0.02)
    assert began().value("epoch.start_compute_s", 0) == pytest.approx(0.0)
    both = analyse(recording({0: own, 1: plan(30)}, facts=facts))
    assert both.value("epoch.start_compute_s", 0) == pytest.approx(0.015), (
        "a backward of several ranks waits for others"
    )


def test_steps_after_the_first_may_still_be_slower_for_what_starting_workers_left() -> None:
    usual, slower = plan(1)[0], (40.0, 8.0, 4.0, 2.0)
    own = [
        {**row, "forward": usual["forward"] + slower[n % 12] if n % 12 < len(slower) else usual["forward"]}
        for n, row in enumerate(epoch_starts(plan(48), 12, input_wait=410))
    ]
    found = analyse(recording({0: own}, facts={100: {"loaders": [TRAIN]}}))
    assert found.value("epoch.start_compute_s", 0) == pytest.approx(0.054)


def test_an_epoch_of_few_steps_is_measured_against_its_second_half() -> None:
    own = epoch_starts(plan(40), 4, input_wait=410, forward=plan(1)[0]["forward"] + 40)
    found = analyse(recording({0: own}, facts={100: {"loaders": [TRAIN]}}))
    assert found.value("epoch.start_compute_s", 0) == pytest.approx(0.04)


def test_a_single_epoch_has_no_usual_start() -> None:
    analysis = began(every=1000)
    assert analysis.value("epoch.starts", 0) == 0.0
    assert not analysis.has("epoch.start_s")


@pytest.mark.parametrize(
    ("workers", "start_s"),
    [pytest.param(2, 0.41, id="workers would have it ready"), pytest.param(0, 0.0, id="it is made at the spot anyhow")],
)
def test_where_each_step_begins_an_epoch_its_wait_is_what_no_usual_fetch_has(workers: int, start_s: float) -> None:
    analysis = began(every=1, workers=workers)
    assert analysis.value("epoch.steps", 0) == 1.0
    assert analysis.value("epoch.start_s", 0) == pytest.approx(start_s)
    assert analysis.value("step.epoch_start_s", 0) == pytest.approx(start_s)
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(0.41 - start_s)


def test_first_batches_and_what_the_sampler_takes_after_the_workers_stood() -> None:
    rows, made = [], []
    for epoch in (1, 2):
        at = start_of(epoch)
        made.append(("loader_start", 10 * epoch, at, at + 0.15))  # the last worker stands after 50 ms
        for worker in (0, 1):
            born = at + 0.03 + 0.02 * worker
            rows.append({"start": born + 0.1, "wait": 100, "wall": 200, "flags": FLAG_FIRST_BATCH, "worker": worker})
    rows.append({"start": 0.5, "wall": 999, "flags": FLAG_FIRST_BATCH})  # of the first epoch
    analysis = began(batches={0: batches(rows)}, spans={0: spans(made)})
    assert analysis.value("epoch.first_batch_s", 0) == pytest.approx(0.2)
    assert analysis.value("epoch.index_s", 0) == pytest.approx(0.1)


def test_where_not_all_workers_made_a_batch_it_is_not_known_when_they_stood() -> None:
    at = start_of(1)
    rows = [{"start": at + 0.13, "wait": 100, "wall": 50, "flags": FLAG_FIRST_BATCH}]
    analysis = began(batches={0: batches(rows)}, spans={0: spans([("loader_start", 10, at, at + 0.15)])})
    assert analysis.value("epoch.index_s", 0) == 0.0


def test_workers_that_stand_after_the_iterator_was_made_leave_no_sorting() -> None:
    at = start_of(1)
    rows = [{"start": at + 0.3, "wait": 20, "wall": 50, "flags": FLAG_FIRST_BATCH}]
    analysis = began(batches={0: batches(rows)}, spans={0: spans([("loader_start", 10, at, at + 0.1)])})
    assert analysis.value("epoch.index_s", 0) == 0.0


@pytest.mark.parametrize(
    ("changed", "start_s"),
    [({}, 0.1 / 27), ({"training": True}, None), ({"id": 3}, 0.0), ({"num_workers": 0}, None)],
    ids=["evaluating", "training", "another loader", "no workers"],
)
def test_what_starting_the_workers_of_evaluations_takes(changed: dict[str, Any], start_s: float | None) -> None:
    made = spans([("loader_start", 10, 1.02, 1.07), ("loader_start", 20, 2.0, 2.05), ("evaluation", 20, 2.0, 2.09)])
    steady = steady_steps(accounted_steps(run := recording({0: plan(30)}, spans={0: made})))
    settings = {"rank": 0, "id": 0, "training": False, "file": "t.py", "line": 3, "num_workers": 2, "batch_size": 8}
    loader = LoaderFacts(**{**settings, "persistent_workers": False, "pin_memory": False, "dataset": {}, **changed})
    found = evaluation_start_values(run, steady, [loader]).get((STEP_EVALUATION_START_S, 0))
    assert found == (None if start_s is None else pytest.approx(start_s, rel=0.05))
