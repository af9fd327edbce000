"""What stack samples of processes that make batches show: a lock and its effect on forecasts, and work repeated for each item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, MS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerFeed, WorkerModel, forecast, step_without_lock
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine, SharedLock
from rn50_advisor.advisor.model.recording import Event

GETITEM = {"function": "Frames.__getitem__", "file": "/job/data.py", "line": 61}


def looked(awaits: Sequence[str | None], **data: Any) -> Analysis:
    """A second apart from the fourth on; the steps last for six."""
    events = tuple(
        Event(FIRST_STEP_NS + (1000 + 250 * n) * MS, "making", 200, 0, {"user": GETITEM, "awaits": word, **data})
        for n, word in enumerate(awaits)
    )
    return analyse(replace(recording({0: plan(60)}), events=events))


def test_the_share_of_samples_with_a_waiting_worker_and_its_line() -> None:
    found = looked(["lock", None] * 4 + ["lock", "server"])
    assert found.get("loader.lock_share") == pytest.approx(0.6)
    assert found.get("loader.lock_error") == pytest.approx((7 / 12 * 5 / 12 / 12) ** 0.5)
    assert found.lock == SharedLock("lock", SampleLine("Frames.__getitem__", "/job/data.py", 61, 6, 10))


def test_behind_a_librarys_data_set_there_is_no_line() -> None:
    assert looked(["server"] * 8, user=None).lock == SharedLock("server")


def test_workers_that_never_waited_share_no_lock() -> None:
    free = looked([None] * 8)
    assert (free.get("loader.lock_share"), free.lock) == (0.0, None)


def test_who_waits_for_answers_of_a_server_waits_for_no_lock() -> None:
    found = looked([None] * 8, asks=True)
    assert (found.get("loader.asking_share"), found.get("loader.lock_share"), found.lock) == (1.0, 0.0, None)
    assert found.asking == SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8)
    assert looked([None] * 8).get("loader.asking_share") == 0.0 and looked([None] * 8).asking is None


def test_the_share_of_samples_in_a_repeated_call_and_its_line() -> None:
    found = looked([None] * 8, repeats="zipfile.ZipFile")
    assert found.get("loader.repeated_share") == 1.0
    assert found.get("loader.repeated_error") == pytest.approx((0.9 * 0.1 / 10) ** 0.5)
    assert found.repeated == FrequentCall("zipfile.ZipFile", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))
    none = looked([None] * 8)
    assert (none.get("loader.repeated_share"), none.repeated) == (0.0, None)


def test_the_share_of_samples_inside_a_table_and_its_line() -> None:
    found = looked([None] * 8, table="pandas")
    assert (found.get("loader.table_share"), found.get("loader.repeated_share")) == (1.0, 0.0)
    assert found.table == FrequentCall("pandas", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))


def test_few_samples_give_no_measurement() -> None:
    few = looked(["lock"] * 5)
    assert few.get("loader.repeated_share") is None
    assert few.get("loader.lock_share") is None and "5 stacks" in few.missing["loader.lock_share"]


# four workers sleep 0.1 s of a batch under a lock, and wait for it three times as long; training takes 0.05 s
LOCKED = WorkerFeed(workers=4, computing_s=(0.0,), waiting_s=(0.4,), rest_s=(0.05,), locked_s=0.1)
MODEL = WorkerModel(StepModel(0.1, {0: {"input_wait": 0.05, "forward": 0.05}}), {0: LOCKED})


def test_more_workers_bring_nothing_while_they_take_turns() -> None:
    found = forecast(MODEL)
    assert found is not None and found.most >= 8
    assert found.step_s(8) == pytest.approx((0.1, 0.1)) and found.step_s(1)[0] == pytest.approx(0.4)


@pytest.mark.parametrize(("waiting", "step_s"), [(0.75, 0.05), (0.4, 0.06), (0.0, 0.1), (1.0, 0.05)])
def test_without_the_lock_they_work_side_by_side(waiting: float, step_s: float) -> None:
    """0.4 s less what they wait, by four; training takes 0.05."""
    assert step_without_lock(MODEL, waiting) == pytest.approx((step_s, step_s), rel=0.02)


def test_without_batches_there_is_no_forecast() -> None:
    assert step_without_lock(replace(MODEL, feeds={}), 0.5) is None
