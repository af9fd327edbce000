"""A worker's log: one record a batch, numbered in the order of their making."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns
from typing import Any

import pytest

from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.garbage import Garbage
from rn50_advisor.probes.rank.layout import BATCH_FIELDS, FLAG_FIRST_BATCH, KIND_BATCH
from rn50_advisor.probes.rank.steps.step_account import Account
from rn50_advisor.probes.rank.workers import worker_batches
from rn50_advisor.probes.rank.workers.worker_batches import (
    DRAWING_MIN_NS,
    Drawing,
    InProcess,
    WorkerLog,
    computed_ns,
    timed_fetch,
)
from step_loops import MS, TRAIN, Loop


def test_batches_are_numbered_from_the_workers_start(tmp_path: Path) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=3, loader=1)
    for samples in (8, 8, 5):
        log.end(log.begin(), samples)
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    made = [dict(zip(BATCH_FIELDS, payload, strict=True)) for _, payload in rows]
    assert [(row["number"], row["samples"], row["worker"]) for row in made] == [(0, 8, 3), (1, 8, 3), (2, 5, 3)]
    assert all(row["system_ns"] >= 0 and row["cpu_ns"] > 0 for row in made)
    assert [flags for flags, _ in rows] == [FLAG_FIRST_BATCH, 0, 0]


def test_collections_within_a_batch_are_timed(tmp_path: Path) -> None:
    garbage = Garbage()
    garbage.listen()
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1, garbage=garbage)
    try:
        gc.collect()  # before the batch
        for collects in (True, False):
            began = log.begin()
            if collects:
                gc.collect()
            log.end(began, 1)
    finally:
        garbage.stop()
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    first, second = (dict(zip(BATCH_FIELDS, payload, strict=True)) for _, payload in rows)
    assert 0 < first["gc_ns"] < first["t_end_ns"] - first["t_start_ns"] and second["gc_ns"] < first["gc_ns"]


def test_where_noting_collections_costs_too_much_batches_are_passed_over(tmp_path: Path) -> None:
    garbage = Garbage()
    garbage.listen()
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1, garbage=garbage)
    listening = []
    gc.disable()  # only the collections below
    try:
        for batch in range(100):
            began = log.begin()
            listening.append(garbage.callback in gc.callbacks)
            for _ in range(1000 if batch == 2 else 0):
                gc.collect(0)
            log.end(began, 1)
    finally:
        gc.enable()
        garbage.stop()
    noted = listening.index(True, 3)  # the 1000 collections of batch 2 cost far more than 0.5 % of it
    assert listening == [n <= 2 or n >= noted for n in range(100)] and noted > 5
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert [payload[BATCH_FIELDS.index("gc_ns")] >= 0 for _, payload in rows] == listening


def test_without_the_collectors_events_their_time_is_unknown(tmp_path: Path) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1)
    log.end(log.begin(), 1)
    ((_, payload),) = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert dict(zip(BATCH_FIELDS, payload, strict=True))["gc_ns"] == -1


BUSY = "from time import process_time\nwhile process_time() < 0.2: pass"


def test_a_program_that_makes_a_sample_is_part_of_the_batch(tmp_path: Path) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1)
    began = log.begin()
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    log.end(began, 1)
    ((_, payload),) = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert dict(zip(BATCH_FIELDS, payload, strict=True))["cpu_ns"] > 150_000_000


def test_in_the_training_process_a_program_that_makes_a_sample_is_part_of_the_batch(tmp_path: Path) -> None:
    clock, account, _ = in_process(tmp_path)
    began = clock.begin()
    subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)
    clock.end(began, 1)
    assert account.fetching.cpu_ns > 150_000_000


@pytest.mark.parametrize(
    ("programs_ns", "computed"),
    [(0, 10), (50, 60), (70, 80), (5_000, 80)],
    ids=["none", "one", "all of the wait", "one that has served many batches"],
)
def test_a_batch_computes_no_longer_than_it_takes(programs_ns: int, computed: int) -> None:
    assert computed_ns(wall_ns=100, cpu_ns=10, delay_ns=20, programs_ns=programs_ns) == computed


def test_the_recorders_cost_in_a_worker_is_in_the_rings_header(tmp_path: Path) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1)
    reader, before = RingReader(tmp_path / "worker-7.ring"), []
    for _ in range(3):
        log.end(log.begin(), 8)
        before.append(reader.position().self_ns)
    assert 0 < before[0] < before[1] < before[2] == log.self_ns
    profile = types.SimpleNamespace(self_ns=5_000_000, finish=lambda *given, **named: None)
    log.write_profile(profile, (0,), 8, None)  # type: ignore[arg-type]
    log.end(log.begin(), 8)
    assert reader.position().self_ns >= before[2] + 5_000_000, "profiles are part of it"


class Heavy:
    """Takes two milliseconds to be pickled."""

    def __reduce__(self) -> Any:
        end_ns = thread_time_ns() + 2_000_000
        while thread_time_ns() < end_ns:
            pass
        return int, ()


def test_pickling_is_the_cpu_time_of_the_queues_thread(tmp_path: Path) -> None:
    queue = multiprocessing.get_context("fork").Queue()
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1, queue=queue)
    for _ in range(3):
        log.end(log.begin(), 8)
        queue.put(Heavy())
        assert queue.get() == 0
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    _, *sending = [dict(zip(BATCH_FIELDS, payload, strict=True))["sending_ns"] for _, payload in rows]
    assert all(ns >= 2_000_000 for ns in sending), "of the batch before each"


@pytest.mark.parametrize("queue", [lambda: None, multiprocessing.SimpleQueue], ids=["none", "one without a thread"])
def test_what_an_unknown_queue_takes_to_send_is_unknown(tmp_path: Path, queue: Callable[[], Any]) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1, queue=queue())
    log.end(log.begin(), 8)
    [(_, payload)] = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert dict(zip(BATCH_FIELDS, payload, strict=True))["sending_ns"] == -1


KNOWS = """
import multiprocessing, sys
from rn50_advisor.probes.rank.workers.worker_batches import own_loader, set_loader_of_workers
for loader in (3, 5):  # a server that forks is started for the first of them
    set_loader_of_workers(loader)
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as workers:
        print(workers.apply(own_loader))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_knows_its_loader_however_it_is_started(method: str) -> None:
    root = Path(__file__).resolve().parents[4] / "src"
    command = [sys.executable, "-c", KNOWS, method]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["3", "5"], done.stderr


class Fetcher:
    """As torch's: a class with a `fetch` that makes a batch."""

    dataset = ()

    def fetch(self, index: list[int]) -> list[int]:
        if not index:
            raise StopIteration
        return [2 * i for i in index]


@pytest.mark.parametrize(("index", "samples"), [([4, 5], 2), (4, 3), (None, 3)])
def test_a_data_set_that_makes_batches_itself_is_asked_for_one_at_a_time(
    tmp_path: Path, index: object, samples: int
) -> None:
    class Batches:
        dataset = ()

        def fetch(self, index: object) -> object:
            return types.SimpleNamespace(shape=(3, 8))

    log = WorkerLog(str(tmp_path), 7, worker=0, loader=1)
    timed_fetch(Batches.fetch, log, pytest.fail)(Batches(), index)
    [(_, payload)] = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert payload[BATCH_FIELDS.index("samples")] == samples


def in_process(tmp_path: Path) -> tuple[InProcess, Account, list[str]]:
    account, failures = Account(thread=1), []
    return InProcess(account, str(tmp_path), lambda: failures.append("failed")), account, failures


def test_in_the_training_process_a_watched_fetcher_is_timed_once_and_is_then_as_it_was(tmp_path: Path) -> None:
    clock, account, failures = in_process(tmp_path)
    fetcher, nested = Fetcher(), Fetcher()
    clock.watch(fetcher)
    clock.watch(nested)  # a dataset that iterates over a loader of its own
    assert (fetcher.fetch([1, 2]), nested.fetch([3])) == ([2, 4], [6])
    assert account.fetching.batches == 1 and account.fetching.wall_ns > 0
    clock.release()
    clock.release()
    assert vars(fetcher) == vars(nested) == {}
    fetcher.fetch([1])
    assert account.fetching.batches == 1 and not failures


def test_what_a_watched_fetch_raises_passes_through_and_counts_as_no_batch(tmp_path: Path) -> None:
    clock, account, failures = in_process(tmp_path)
    fetcher = Fetcher()
    clock.watch(fetcher)
    with pytest.raises(StopIteration):
        fetcher.fetch([])
    assert account.fetching.batches == 0 and not failures


def test_a_clock_that_fails_costs_the_job_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, account, failures = in_process(tmp_path)
    monkeypatch.setattr(clock, "begin", lambda: 1 / 0)
    fetcher = Fetcher()
    clock.watch(fetcher)
    assert fetcher.fetch([4]) == [8]
    assert failures and account.fetching.batches == 0


def test_a_loader_inside_a_data_set_is_part_of_the_batch_around_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")  # as in every worker
    log, failures = WorkerLog(str(tmp_path), 7, worker=0, loader=1), []

    class Outer(Fetcher):
        def fetch(self, index: list[int]) -> list[int]:
            return timed(Fetcher(), index) if type(self) is Outer else super().fetch(index)

    timed = timed_fetch(Fetcher.fetch, log, lambda: failures.append("failed"))
    outer = timed_fetch(Outer.fetch, log, lambda: failures.append("failed"))
    assert [outer(Outer(), [n]) for n in (1, 2)] == [[2], [4]]
    with pytest.raises(StopIteration):
        outer(Outer(), [])
    outer(Outer(), [3])
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    assert [dict(zip(BATCH_FIELDS, payload, strict=True))["number"] for _, payload in rows] == [0, 1, 2]
    assert not failures


def test_a_fetch_that_the_job_has_put_on_the_object_is_called(tmp_path: Path) -> None:
    clock, account, failures = in_process(tmp_path)
    fetcher = Fetcher()
    own = fetcher.fetch = lambda index: ["the job's"]
    clock.watch(fetcher)
    assert fetcher.fetch([1]) == ["the job's"]
    clock.release()
    assert fetcher.fetch is own and account.fetching.batches == 0 and not failures


class Iterator:
    """As torch's: asks its sampler for the indices of a batch."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.left = loop, 3

    def _next_index(self) -> list[int]:
        self.loop.now += self.took_ns
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return [self.left]

    took_ns = 2 * MS


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(worker_batches, "perf_counter_ns", lambda: 1 + made.now)
    return made


@pytest.mark.parametrize(("took_ns", "spans_ms"), [(DRAWING_MIN_NS, [0.1]), (DRAWING_MIN_NS - 1, [])])
def test_a_fetch_records_its_drawing_unless_the_sampler_is_quick(
    loop: Loop, took_ns: int, spans_ms: list[float]
) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    iterator.took_ns = took_ns
    before = dict(vars(iterator))
    clock.watch(iterator)
    clock.watch(Iterator(loop))  # of a data set that iterates over a loader of its own
    assert iterator._next_index() == [2]
    clock.release(loop.account, TRAIN)
    clock.release(loop.account, TRAIN)
    assert vars(iterator) == {**before, "left": 2}, "it is as it was"
    assert [row for row in loop.paper.spans if row[0] == "index"] == [("index", ms) for ms in spans_ms]


def test_all_that_is_drawn_in_one_fetch_counts(loop: Loop) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    clock.watch(iterator)
    iterator._next_index()
    loop.spend(7)
    iterator._next_index()
    clock.release(loop.account, TRAIN)
    assert loop.paper.spans == [("index", 4)]


def test_the_end_of_a_sampler_shows_no_frame_of_the_recorder(loop: Loop) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    iterator.left = 0
    clock.watch(iterator)
    with pytest.raises(StopIteration) as ended:
        iterator._next_index()
    assert all("rank/drawing" not in str(entry.path) for entry in ended.traceback)


def test_an_iterator_without_that_method_or_with_one_of_the_jobs_is_left_alone(loop: Loop) -> None:
    clock, own = Drawing(), Iterator(loop)
    clock.watch(object())
    draw = own._next_index
    own._next_index = draw  # type: ignore[method-assign]
    clock.watch(own)
    assert vars(own)["_next_index"] is draw
