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
from rn50_advisor.advisor.model.recording import Event, Source

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


def test_the_line_that_calls_the_garbage_collector() -> None:
    assert looked([None] * 8, collects=True).collecting == SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8)
    assert looked([None] * 8).collecting is None


def test_the_share_of_samples_in_a_repeated_call_and_its_line() -> None:
    found = looked([None] * 8, repeats="zipfile.ZipFile")
    assert found.get("loader.repeated_share") == 1.0
    assert found.get("loader.repeated_error") == pytest.approx((0.9 * 0.1 / 10) ** 0.5)
    assert found.repeated == FrequentCall("zipfile.ZipFile", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))
    none = looked([None] * 8)
    assert (none.get("loader.repeated_share"), none.repeated) == (0.0, None)


def test_what_the_call_reads_whole() -> None:
    found = looked([None] * 8, repeats="torch.load", whole="file").repeated
    assert found is not None and (found.name, found.whole) == ("torch.load", "file")


def test_the_share_of_samples_inside_a_table_and_its_line() -> None:
    found = looked([None] * 8, table="pandas")
    assert (found.get("loader.table_share"), found.get("loader.repeated_share")) == (1.0, 0.0)
    assert found.table == FrequentCall("pandas", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))


def test_of_several_arrays_the_one_with_the_largest_chunks_counts() -> None:
    arrays = [
        {"name": "labels", "rows": 4096, "chunk": [1024], "packed": False},
        {"name": "images", "rows": 4096, "chunk": [8, 64, 64], "packed": True},
    ]
    events = tuple(Event(FIRST_STEP_NS, "chunked_array", None, None, array) for array in arrays)
    found = analyse(replace(recording({0: plan(60)}), events=events))
    assert found.get("loader.chunk_items") == 8.0 and found.chunked_arrays[0]["name"] == "images"
    none = looked([None] * 8)
    assert none.get("loader.chunk_items") is None and "open" in none.missing["loader.chunk_items"]


def test_the_share_of_samples_in_an_array_in_chunks_and_the_arrays() -> None:
    found = looked([None] * 8, chunked="h5py")
    assert (found.get("loader.chunked_share"), found.get("loader.table_share")) == (1.0, 0.0)
    assert found.chunked == FrequentCall("h5py", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))


def test_the_share_of_samples_that_read_an_array_in_chunks() -> None:
    found = looked([None] * 8, array="zarr")
    assert (found.get("loader.array_share"), found.get("loader.chunked_share")) == (1.0, 0.0)
    assert found.array == FrequentCall("zarr", SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8))


def test_the_share_of_samples_that_go_through_a_whole_collection_and_their_line() -> None:
    found = looked([None] * 8, collection={"kind": "searches", "call": "self.names.index"})
    assert (found.get("loader.collection_share"), found.get("loader.repeated_share")) == (1.0, 0.0)
    line = SampleLine("Frames.__getitem__", "/job/data.py", 61, 8, 8)
    assert found.through == FrequentCall("self.names.index", line, "searches")
    none = looked([None] * 8)
    assert (none.get("loader.collection_share"), none.through) == (0.0, None)


def test_few_samples_give_no_measurement() -> None:
    few = looked(["lock"] * 5)
    assert few.get("loader.repeated_share") is None
    assert few.get("loader.lock_share") is None and "5 stacks" in few.missing["loader.lock_share"]


ILOC, USED = ({**GETITEM, "line": line} for line in (48, 49))


def profiled(*profiles: Sequence[dict[str, Any]], at_ms: int = 2000, dumps: int = 0) -> Analysis:
    """Each profile of a rank of its own that makes its batches, and so many single samples that show nothing."""
    events = [
        Event(FIRST_STEP_NS + at_ms * MS, "profile", 100 + rank, rank, {"looks": 400, "stacks": [], "making": [*rows]})
        for rank, rows in enumerate(profiles)
    ]
    single = {"user": GETITEM, "awaits": None}
    events += [Event(FIRST_STEP_NS + (3000 + n) * MS, "making", 100, 0, single) for n in range(dumps)]
    return analyse(replace(recording({0: plan(60)}), events=tuple(events)))


def row(count: int, user: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    return {"user": user or GETITEM, "awaits": None, "count": count, **data}


TAKEN = (row(40, ILOC, table="pandas"), row(20, USED, table="pandas"), row(30, USED), row(10))


def test_a_profile_of_the_training_thread_counts_as_thirty_samples_at_most() -> None:
    found = profiled(TAKEN)
    assert found.get("loader.table_share") == pytest.approx(0.6)
    assert found.get("loader.table_error") == pytest.approx((19 / 32 * 13 / 32 / 32) ** 0.5)
    assert found.table == FrequentCall("pandas", SampleLine("Frames.__getitem__", "/job/data.py", 48, 40, 100))
    few = profiled([row(6, table="pandas"), row(4)])
    assert few.get("loader.table_error") == pytest.approx((7 / 12 * 5 / 12 / 12) ** 0.5)


def test_profiles_of_several_ranks_and_single_samples_count_each() -> None:
    found = profiled(TAKEN, TAKEN, dumps=20)
    assert found.get("loader.table_share") == pytest.approx(0.6 * 60 / 80)
    assert found.get("loader.table_error") == pytest.approx((37 / 82 * 45 / 82 / 82) ** 0.5)
    assert found.table == FrequentCall("pandas", SampleLine("Frames.__getitem__", "/job/data.py", 48, 80, 220))


def test_a_profile_shows_repeated_calls_waits_and_requests_too() -> None:
    rows = [row(20, repeats="zipfile.ZipFile"), row(10, asks=True), row(10, awaits="lock"), row(10)]
    found = profiled(rows)
    shares = {name: found.get(f"loader.{name}_share") for name in ("repeated", "asking", "lock", "table")}
    assert shares == pytest.approx({"repeated": 0.4, "asking": 0.2, "lock": 0.2, "table": 0.0})
    assert found.repeated is not None and found.repeated.name == "zipfile.ZipFile"
    assert found.asking is not None and (found.asking.seen, found.asking.looks) == (10, 50)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(profiled([row(5, table="pandas")]), id="five samples in the loader"),
        pytest.param(profiled(TAKEN, at_ms=-2500), id="while the job warmed up"),
        pytest.param(profiled([]), id="none in the loader"),
    ],
)
def test_a_profile_that_shows_little_is_no_measurement(found: Analysis) -> None:
    assert found.get("loader.table_share") is None
    assert "stacks of processes making samples" in found.missing["loader.table_share"]


def test_one_long_collection_takes_many_samples_of_a_profile() -> None:
    called = [row(50, collects=True), row(50)]
    once, twice = profiled(called).collecting, profiled(called, called).collecting
    assert once is not None and once.seen == 1
    assert twice is not None and (twice.seen, twice.looks) == (100, 200)


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


CLIPS = """\
import numpy as np

def bank(rows):
    table = np.zeros((rows, 400))
    for row in range(rows):
        table[row] = np.hanning(400) * row
    return table

class Clips:
    def __init__(self, clips):
        self.clips, self.rows = clips, 64
    def __getitem__(self, at):
        window = np.hamming(400)
        return bank(self.rows) @ (self.clips[at] * window)
"""


def making_clips(lines: Sequence[tuple[int, ...]], text: str = CLIPS, **data: Any) -> Analysis:
    """`lines`: of each sample the lines of its stack, innermost first."""
    stacks = [
        [
            {"function": "bank" if line < 9 else "Clips.__getitem__", "file": "/job/clips.py", "line": line}
            for line in of
        ]
        for of in lines
    ]
    events = tuple(
        Event(
            FIRST_STEP_NS + (1000 + 250 * n) * MS,
            "making",
            200,
            0,
            {"user": stack[0], "callers": stack[1:], "awaits": None, **data},
        )
        for n, stack in enumerate(stacks)
    )
    return analyse(replace(recording({0: plan(60)}), events=events, sources=(Source("/job/clips.py", "", text),)))


def test_computing_that_uses_nothing_of_the_item_is_repeated() -> None:
    found = making_clips([(6, 14)] * 4 + [(4, 14), (13,), (14,), (14,)])
    assert found.get("loader.repeated_share") == pytest.approx(6 / 8)
    call = found.repeated
    assert call is not None and call.computes and call.name == "bank"
    assert call.line == SampleLine("Clips.__getitem__", "/job/clips.py", 14, 5, 8)
    assert call.more == (SampleLine("Clips.__getitem__", "/job/clips.py", 13, 1, 8),)


def test_computing_with_the_item_is_not_repeated() -> None:
    found = making_clips([(6, 14)] * 8, CLIPS.replace("bank(self.rows)", "bank(self.clips[at].size)"))
    assert (found.get("loader.repeated_share"), found.repeated) == (0.0, None)


def test_a_repeated_call_counts_where_more_samples_are_in_it() -> None:
    found = making_clips([(14,)] * 8, repeats="zipfile.ZipFile")
    assert found.repeated is not None and (found.repeated.name, found.repeated.computes) == ("zipfile.ZipFile", False)
