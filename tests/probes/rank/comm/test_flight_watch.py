"""A stalled rank writes what torch's flight recorder has; a rank that advances, leaves or has no recorder writes nothing."""

from __future__ import annotations

import json
import os
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.comm import flight_watch
from rn50_advisor.probes.rank.comm.flight_watch import (
    ENTRIES_MAX,
    FIRST_TIMES,
    STALLED_CHECKS,
    TIMES_EVERY,
    TIMES_MAX,
    FlightWatch,
    read_dumps,
    read_times,
    training_stack,
)
from rn50_advisor.probes.rank.layout import PHASE_BITS
from rn50_advisor.probes.rank.ring import PHASE, STEP
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, ENDED, FORWARD

DUMP = {
    "version": "2.10",
    "comm_lib_version": "2.21.5",
    "pg_config": {"0": {"ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": "3"}},
    "entries": [
        {"collective_seq_id": n, "profiling_name": "gloo:all_reduce", "input_sizes": [[4]], "thread_id": "7"}
        for n in range(40)
    ],
}


class Rank:
    def __init__(self, folder, dumps=({"entries": [1]},)):
        self.words = memoryview(bytearray(4096)).cast("q")
        self.at(BACKWARD, 5, 1000)
        self.recorder = SimpleNamespace(
            account=SimpleNamespace(ring=SimpleNamespace(words=self.words)), folder=str(folder), active=True, errors=0
        )
        self.watch = FlightWatch(self.recorder, lambda: list(dumps))
        self.path = folder / f"flight-{os.getpid()}.json"

    def at(self, phase, step, since_ns):
        self.words[PHASE], self.words[STEP] = since_ns << PHASE_BITS | phase, step

    def check(self, count):
        return sum(self.watch.stalled() for _ in range(count))


def test_a_stalled_rank_is_reported_once(tmp_path):
    rank = Rank(tmp_path)
    assert rank.check(STALLED_CHECKS) == 0, "the first check only finds the place"
    assert rank.check(1) == 1
    assert rank.check(50) == 0
    rank.at(FORWARD, 6, 2000)
    assert rank.check(STALLED_CHECKS + 1) == 1, "another place is another stall"


def test_a_rank_that_moves_or_leaves_is_left_alone(tmp_path):
    rank = Rank(tmp_path)
    for number in range(20):
        rank.at(BACKWARD, number, 1000 * number)
        assert rank.check(2) == 0
    rank.at(ENDED, 20, 1)
    assert rank.check(20) == 0
    rank.recorder.account = None
    assert rank.check(20) == 0


def test_the_file_names_the_stall_by_its_start(tmp_path):
    rank = Rank(tmp_path)
    rank.check(STALLED_CHECKS + 1)
    rank.watch.write()
    assert json.loads(rank.path.read_text()) == {"since_ns": 1000, "dumps": [{"entries": [1]}]}


def test_without_a_flight_recorder_nothing_is_written(tmp_path):
    rank = Rank(tmp_path, dumps=())
    rank.watch.write()
    assert not list(tmp_path.iterdir())


def test_the_thread_ends_when_it_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_watch, "CHECK_EVERY_S", 0.001)
    rank = Rank(tmp_path)
    ended = []
    started = []

    def start_new_thread(run, arguments):
        import threading

        started.append(threading.Thread(target=lambda: ended.append(run())))
        started[0].start()

    monkeypatch.setattr(flight_watch._thread, "start_new_thread", start_new_thread)
    rank.watch.start()
    while not rank.path.exists():
        assert started[0].is_alive()
    rank.watch.stop()
    started[0].join(10)
    assert ended == [None] and not rank.recorder.errors
    rank.watch.stop()


def test_stopping_waits_for_what_the_thread_is_doing(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_watch, "CHECK_EVERY_S", 0.001)
    rank, began, seen = Rank(tmp_path), threading.Event(), []

    def slow_look():
        began.set()
        time.sleep(0.2)
        seen.append(rank.watch._leaving)

    rank.watch.stalled = slow_look
    rank.watch.start()
    began.wait()
    rank.watch.stop()
    assert seen[-1] is None, "it had looked to the end before `stop` returned"


def test_a_thread_that_does_not_come_back_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(flight_watch, "CHECK_EVERY_S", 0.001)
    monkeypatch.setattr(flight_watch, "LEAVING_S_MAX", 0.01)
    rank, began, end = Rank(tmp_path), threading.Event(), threading.Event()
    rank.watch.stalled = lambda: began.set() or end.wait()
    rank.watch.start()
    began.wait()
    rank.watch.stop()
    assert not end.is_set()
    end.set()


def test_a_fault_ends_the_thread_and_nothing_else(tmp_path, monkeypatch):
    rank = Rank(tmp_path)
    rank.watch._leaving = SimpleNamespace(acquire=lambda timeout: False)
    rank.watch.stalled = lambda: 1 // 0
    rank.watch._run()
    assert rank.recorder.errors == 1


def torch_with(**functions):
    return SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=SimpleNamespace(**functions)))


def answering(dump):
    return lambda includeCollectives, onlyActive: json.dumps(dump).encode()


def test_only_the_latest_entries_are_kept_without_their_stacks():
    (kept,) = read_dumps(torch_with(_dump_fr_trace_json=answering(DUMP)))
    assert len(kept["entries"]) == ENTRIES_MAX and kept["entries"][-1]["collective_seq_id"] == 39
    assert "thread_id" not in kept["entries"][0] and kept["pg_status"] == DUMP["pg_status"]
    assert kept["library"] == "2.21.5"


def refusing(includeCollectives, onlyActive):
    raise RuntimeError("built without NCCL")


@pytest.mark.parametrize(
    "functions",
    [
        {},
        {"_dump_nccl_trace_json": refusing},
        {"_dump_fr_trace_json": lambda: b"{}"},
        {"_dump_fr_trace_json": answering({"entries": [], "pg_status": {}})},
    ],
    ids=["none", "refused", "asked otherwise", "empty"],
)
def test_where_there_is_nothing_to_read(functions):
    assert read_dumps(torch_with(**functions)) == []
    assert read_dumps(SimpleNamespace(_C=SimpleNamespace())) == []


def test_a_rank_writes_its_own_stack(tmp_path):
    rank = Rank(tmp_path)
    began, done = threading.Event(), threading.Event()

    def find_batch():
        began.set()
        done.wait()

    thread = threading.Thread(target=find_batch)
    thread.start()
    began.wait()
    rank.recorder.account.thread = thread.ident
    rank.watch = FlightWatch(rank.recorder, list, partial(training_stack, rank.recorder))
    rank.check(STALLED_CHECKS + 1)
    rank.watch.write()
    done.set()
    thread.join()
    position = json.loads(rank.path.read_text())
    assert position["since_ns"] == 1000 and "dumps" not in position
    assert ("find_batch", __file__) in [(frame["function"], frame["file"]) for frame in position["stack"]]
    assert training_stack(rank.recorder) == [], "the thread has ended"
    rank.recorder.account = None
    assert training_stack(rank.recorder) == []


def timed(n, took_ms=2.0, name="nccl:all_reduce", size=1000, **more):
    return {
        "process_group": ["0", "default_pg"], "profiling_name": name, "input_sizes": [[size]], "input_dtypes": ["Float"], "is_p2p": False,
        "duration_ms": took_ms, "time_created_ns": 10**18 + n * 10**9, **more,
    }  # fmt: skip


def times_of(*entries):
    dump = {"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": list(entries)}
    return read_times(torch_with(_dump_nccl_trace_json=answering(dump)))


def test_what_nccl_timed_is_summed_up_by_kind_and_bytes():
    times = times_of(
        timed(0, 2.0), timed(1, 4.0), timed(2, 1.0, "nccl:_all_gather_base", 50, input_dtypes=["BFloat16"]),
        timed(3, None), timed(4, 9.0, is_p2p=True),
    )  # fmt: skip
    assert (times["span_s"], times["ms"], times["calls"], times["untimed"]) == (2.0, 7.0, 3, 2)
    first, second = times["rows"]
    assert (first["name"], first["bytes"], first["calls"], first["ms"], first["least_ms"]) == (
        "nccl:all_reduce",
        4000,
        2,
        6.0,
        2.0,
    )
    assert (second["bytes"], first["group"], first["ranks"]) == (100, "0", "[0, 1]")


def test_only_the_longest_have_rows():
    times = times_of(*(timed(n, float(n + 1), size=n + 1) for n in range(40)))
    assert len(times["rows"]) == TIMES_MAX and times["rows"][0]["ms"] == 40.0 and times["ms"] == sum(range(41))


@pytest.mark.parametrize("entries", [(), (timed(0),), (timed(0, None), timed(1, None))])
def test_without_timing_there_are_no_times(entries):
    assert times_of(*entries) == {}
    assert read_times(torch_with()) == {} and read_times(torch_with(_dump_nccl_trace_json=refusing)) == {}


def test_times_are_read_half_a_minute_on_and_then_seldom(tmp_path):
    watch = Rank(tmp_path).watch
    due = [number for number in range(1, 400) if watch.times_due()]
    assert due == [FIRST_TIMES + n * TIMES_EVERY for n in range(4)]


@pytest.mark.parametrize(("switch", "written"), [("1", True), ("true", True), ("0", False), (None, False)])
def test_times_are_written_where_the_user_has_them_taken(tmp_path, monkeypatch, switch, written):
    monkeypatch.delenv("TORCH_NCCL_ENABLE_TIMING", raising=False)
    if switch is not None:
        monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", switch)
    rank = Rank(tmp_path)
    rank.recorder.account = None  # it has no position
    watch = FlightWatch(rank.recorder, list, list, lambda: {"ms": 7.0})
    ended = iter([False] * FIRST_TIMES + [True])
    watch._leaving = SimpleNamespace(acquire=lambda timeout: next(ended))
    watch._run()
    path = tmp_path / f"times-{os.getpid()}.json"
    assert path.exists() == written and not rank.recorder.errors
    assert not written or json.loads(path.read_text()) == {"ms": 7.0}


def test_times_that_cannot_be_read_do_not_end_the_watch_for_hangs(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", "1")
    rank = Rank(tmp_path)
    watch = FlightWatch(rank.recorder, lambda: [{"entries": [1]}], list, lambda: 1 // 0)
    monkeypatch.setattr(flight_watch, "FIRST_TIMES", 1)
    watch.forget()
    ended = iter([False] * (STALLED_CHECKS + 2) + [True])
    watch._leaving = SimpleNamespace(acquire=lambda timeout: next(ended))
    watch._run()
    assert rank.path.exists() and rank.recorder.errors == 1
