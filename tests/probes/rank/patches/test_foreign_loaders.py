"""Iterators of libraries that know nothing of torch's loaders are timed as fetches, and unchanged for their users."""

from __future__ import annotations

import gc
import inspect
import queue
import sys
import threading
import types

import pytest

from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START, FLAG_NO_LOADER
from rn50_advisor.probes.rank.patches import foreign_loaders
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.steps.step_phases import GAP
from step_loops import Loop

pytest.importorskip("torch")  # imported in each process that the recorder is in
torch = types.SimpleNamespace(is_grad_enabled=lambda: True)


class Batch:
    shape = (16, 3)


class Training(Loop):
    """A loop with a recorder around its account; batches come from iterators with a given duration."""

    def __init__(self, folder):
        super().__init__()
        self.account.thread = threading.get_ident()
        self.recorder = Recorder(torch, str(folder))
        self.recorder.account = self.account
        self.recorder.foreign = foreign_loaders.Foreign(self.recorder)

    def use(self):
        self.forward()
        self.backward()
        self.optimize()

    def train(self, batches):
        """An epoch. The first backward pass is the moment when the recorder looks around."""
        for _ in batches:
            self.use()
            self.recorder.foreign.refresh()
            self.spend(1)


@pytest.fixture
def training(tmp_path):
    made = Training(tmp_path)
    yield made
    made.recorder.active = False
    assert not list(tmp_path.iterdir()), "no error was swallowed"


@pytest.fixture
def library(monkeypatch):
    """Puts a class where a library has it."""

    def put(module, name, **members):
        made = type(name, (), members)
        there = types.ModuleType(module)
        setattr(there, name, made)
        monkeypatch.setitem(sys.modules, module, there)
        return made

    return put


def counted(loop, steps, *, wait=10):
    """The `__next__` of an iterator with so many batches."""

    def following(self):
        self.at = getattr(self, "at", 0) + 1
        if self.at > steps:
            self.at = 0
            raise StopIteration
        loop.spend(wait)
        return [{"data": Batch()}]

    return following


FED = {"input_wait": 10, "forward": 5, "backward": 7, "optimizer": 2, "gap": 1}


def iterable(self):
    return self


@pytest.mark.parametrize(
    ("module", "name", "known_as"),
    [(module, name, library) for module, name, library in foreign_loaders.SOURCES if library != "prefetch_generator"],
)
def test_waiting_for_a_librarys_iterator_is_waiting_for_input(training, library, module, name, known_as):
    iterator = library(module, name, __next__=counted(training, 6), __iter__=iterable, batch_size=16)()
    training.train(iterator)
    training.account.leave()
    unseen, *seen = training.paper.steps[:6]
    assert training.paper.flags[0] & FLAG_NO_LOADER, "before the first backward pass nothing was looked for"
    assert unseen["input_wait_ns"] == 0
    assert [training.phases(n) for n in range(1, 5)] == [FED] * 4
    assert {step["samples"] for step in seen[:4]} == {16}
    assert not any(flags & FLAG_NO_LOADER for flags in training.paper.flags[1:6])
    [loader] = training.recorder.loading.loaders.described.values()
    assert (loader["library"], loader["class"]) == (known_as, name)
    assert loader["file"] == __file__ and loader["line"] == training.train.__code__.co_firstlineno + 2


def test_the_same_iterator_in_the_next_epoch_begins_one(training, library):
    iterator = library(
        "nvidia.dali.plugin.pytorch", "DALIGenericIterator", __next__=counted(training, 4), __iter__=iterable
    )()
    for _ in range(3):
        training.train(iterator)
    training.account.leave()
    first = [n for n, flags in enumerate(training.paper.flags) if flags & FLAG_EPOCH_START]
    assert first == [1, 4, 8], "of the first epoch, the first batch that was seen"


def test_iterators_made_anew_are_one_loader_and_those_side_by_side_are_two(training, library):
    made = library(
        "nvidia.dali.plugin.pytorch", "DALIGenericIterator", __next__=counted(training, 3), __iter__=iterable
    )
    for _ in range(3):
        training.train(made())
        gc.collect()
    assert len(training.recorder.loading.loaders.described) == 1
    kept = [made(), made()]
    for iterator in kept:
        training.train(iterator)
    assert len(training.recorder.loading.loaders.described) == 2


def test_an_epochs_iterator_belongs_to_its_loader(training, library):
    def made_by(self, loader):
        self.loader = loader

    iterator = library(
        "ffcv.loader.epoch_iterator",
        "EpochIterator",
        __init__=made_by,
        __next__=counted(training, 3),
        __iter__=iterable,
    )
    loaders = [type("Loader", (), {})(), type("Loader", (), {})()]
    for loader in (*loaders, *loaders):
        training.train(iterator(loader))
    assert len(training.recorder.loading.loaders.described) == 2


def test_evaluation_with_a_librarys_iterator_is_no_wait_for_input(training, library):
    made = library(
        "nvidia.dali.plugin.pytorch", "DALIGenericIterator", __next__=counted(training, 4), __iter__=iterable
    )
    training.train(made())
    training.recorder.loading.evaluating = lambda: True
    for _ in made():
        training.spend(3)
    training.recorder.loading.evaluating = lambda: False
    training.train(made())
    training.account.leave()
    [evaluation] = [n for n, step in enumerate(training.paper.steps) if step["evaluation_ns"]]
    assert training.phases(evaluation) == {**FED, "evaluation": 4 * 13}


def test_what_an_iterator_is_and_raises_stays_the_same(training, library):
    def following(self):
        """The next batch."""
        raise KeyError("no such picture")

    made = library("nvidia.dali.plugin.pytorch", "DALIGenericIterator", __next__=following, __iter__=iterable)
    training.use()
    training.recorder.foreign.refresh()
    assert made.__next__ is not following, "it is timed"
    assert inspect.signature(made.__next__) == inspect.signature(following)
    assert made.__next__.__doc__ == following.__doc__ and made.__next__.__qualname__ == following.__qualname__
    with pytest.raises(KeyError, match="no such picture") as caught:
        next(made())
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert [entry.name for entry in caught.traceback][1:] == ["following"], "without a frame of ours"
    assert training.account.phase != foreign_loaders.INPUT


def test_a_module_that_loads_itself_when_touched_stays_untouched(training, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"touched: {name}")

    monkeypatch.setitem(sys.modules, "nvidia.dali.plugin.pytorch", Lazy("nvidia.dali.plugin.pytorch"))
    training.recorder.foreign.refresh()


def test_a_class_that_cannot_be_timed_keeps_nobody_from_being_named(tmp_path, monkeypatch):
    made = Training(tmp_path)
    monkeypatch.setitem(sys.modules, "nvidia.dali", types.ModuleType("nvidia.dali"))
    closed = types.ModuleType("nvidia.dali.plugin.pytorch")
    closed.DALIGenericIterator = zip  # a class of C: nothing can be put in its place
    monkeypatch.setitem(sys.modules, closed.__name__, closed)
    made.use()
    made.recorder.foreign.refresh()
    assert "nvidia.dali" in made.recorder.facts.values["input_libraries"]
    assert made.recorder.errors == 1 and made.recorder.active


def test_libraries_that_may_feed_the_loop_are_named(training, monkeypatch):
    monkeypatch.setitem(sys.modules, "webdataset", types.ModuleType("webdataset"))
    training.recorder.foreign.refresh()
    assert "webdataset" in training.recorder.facts.values["input_libraries"]


@pytest.fixture
def queues():
    """The standard library's class as it was, afterwards."""
    before = queue.Queue.put, queue.Queue.get
    yield before
    queue.Queue.put, queue.Queue.get = before


class Ahead:
    """A thread that fetches from a DataLoader and hands on through a queue, one batch each time it is asked to."""

    def __init__(self, recorder, channel):
        self.orders, self.done = queue.SimpleQueue(), queue.SimpleQueue()
        self.channel, self.recorder = channel, recorder
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for item in iter(self.orders.get, "stop"):
            self.recorder.loading.fetch_begin(types.SimpleNamespace(_rn50_loader=3, _num_yielded=1))
            self.channel.put(item)
            self.done.put(True)

    def give(self, item):
        self.orders.put(item)
        assert self.done.get(timeout=10)

    def stop(self):
        self.orders.put("stop")
        self.thread.join()


def test_waiting_for_a_thread_that_runs_ahead_is_waiting_for_its_loader(training, queues):
    channel, other = queue.Queue(), queue.Queue()
    take = channel.get  # a loop may hold the method since before anything was known
    ahead = Ahead(training.recorder, channel)
    ahead.give(Batch())
    take()
    training.use()
    training.recorder.foreign.refresh()
    assert queue.Queue.put is not queues[0], "watched from the first sight of such a thread on"
    for item in (*[Batch()] * 4, None):
        ahead.give(item)
        other.put(1)
        other.get()
        take(timeout=10)
        if item is not None:
            training.use()
    ahead.stop()
    training.account.leave()
    assert training.recorder.facts.values["fetches_in_another_thread"] is True
    assert [step["loader"] for step in training.paper.steps][1:5] == [3] * 4
    assert [step["micro_batches"] for step in training.paper.steps][1:5] == [1] * 4, "the end is no batch"


def test_an_empty_queue_is_as_empty_as_ever(training, queues):
    channel = queue.Queue()
    ahead = Ahead(training.recorder, channel)
    ahead.give(Batch())
    channel.get()
    training.recorder.foreign.refresh()
    training.use()
    ahead.give(Batch())
    channel.get()
    training.use()
    for how in ({"block": False}, {"timeout": 0.01}, {"timeout": 0.01}):
        with pytest.raises(queue.Empty):
            channel.get(**how)
        assert training.account.phase == GAP, "nobody waits for it now"
    ahead.stop()
    assert inspect.signature(queue.Queue.put) == inspect.signature(queues[0])
    assert queue.Queue.get is queues[1]


def test_queues_stay_as_they_are_where_no_thread_fetches(training, queues):
    training.step()
    training.recorder.foreign.refresh()
    assert (queue.Queue.put, queue.Queue.get) == queues


def test_a_loop_that_fetches_by_itself_needs_no_queue(training, queues):
    training.step()
    training.recorder.fetching_threads[1] = 5
    training.recorder.foreign.refresh()
    assert (queue.Queue.put, queue.Queue.get) == queues


def test_a_loader_inside_a_librarys_iterator_is_part_of_it(training, library):
    inner = types.SimpleNamespace(_rn50_loader=7, _num_yielded=1)

    def following(self):
        assert training.recorder.loading.fetch_begin(inner) is None or training.account.step == 0
        training.spend(4)
        return Batch()

    iterator = library("torchdata.nodes.loader", "LoaderIterator", __next__=following, __iter__=iterable)()
    training.use()
    training.recorder.foreign.refresh()
    for _ in range(4):
        next(iterator)
        training.use()
    training.account.leave()
    assert training.phases(2)["input_wait"] == 4 and training.paper.steps[2]["micro_batches"] == 1


def test_a_thread_in_the_place_of_one_that_is_gone_fills_no_queue_of_batches(training, monkeypatch):
    watched, others = queue.Queue(), queue.Queue()
    place = threading.get_ident()
    monkeypatch.setattr(foreign_loaders, "get_native_id", lambda: 1, raising=False)
    training.recorder.fetching_threads[place] = 3
    training.recorder.foreign.fills(watched, 3)
    monkeypatch.setattr(foreign_loaders, "get_native_id", lambda: 2, raising=False)
    training.recorder.foreign.fills(others, 3)
    assert "_get" in vars(watched) and "_get" not in vars(others)
    assert place not in training.recorder.fetching_threads
    training.recorder.fetching_threads[place] = 3  # it fetches too
    training.recorder.foreign.fills(others, 3)
    assert "_get" in vars(others)
