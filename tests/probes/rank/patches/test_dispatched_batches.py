"""Each rank's wait for a batch that rank 0 loads and sends is its input wait; loops get what accelerate's generator gives."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import types
import weakref

import pytest

from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START, FLAG_NO_LOADER
from rn50_advisor.probes.rank.patches import dispatched_batches, foreign_loaders
from rn50_advisor.probes.rank.recorder import Recorder
from step_loops import Loop

pytest.importorskip("torch")  # imported in each process that the recorder is in
torch = types.SimpleNamespace(is_grad_enabled=lambda: True)
FETCH_MS, BROADCAST_MS = 4, 3


class Slice(list):
    """A rank's part of a batch, which can be watched."""


class Inner:
    """The loader that a dispatcher takes batches from, by its number among the job's."""


class Training(Loop):
    """A rank's loop with a recorder around its account."""

    def __init__(self, folder):
        super().__init__()
        self.account.thread = threading.get_ident()
        self.recorder = Recorder(torch, str(folder))
        self.recorder.account = self.account
        self.recorder.foreign = foreign_loaders.Foreign(self.recorder)
        self.followed = []
        dispatched_batches.install(self.recorder, self.after)

    def after(self, module, callback):
        assert module == "accelerate.data_loader"
        self.followed.append(callback)
        return types.SimpleNamespace(find_spec=lambda *_: None)

    def train(self, loader, *, most=100):
        for _ in loader:
            self.train_on_batch()
            self.spend(1)
            most -= 1
            if not most:
                break

    def known(self, loader, number=3):
        """Gives the loader inside this number."""
        loaders = self.recorder.loading.loaders
        loaders.numbers.put(loader, number)
        loaders.described[number] = {"class": "DataLoader", "batch_size": 8}


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made = Training(tmp_path)
    yield made
    made.recorder.active = False
    assert not list(tmp_path.iterdir()), "no error was swallowed"


@pytest.fixture
def dispatcher(training, monkeypatch):
    """accelerate's class as far as it matters, followed once its module has been imported."""

    class DataLoaderDispatcher:
        def __init__(self, batches=5, *, rank=0, inner=None, split=False, fails_at=None, mesh=None):
            self.batches, self.rank, self.fails_at = batches, rank, fails_at
            self.split_batches, self.submesh_tp, self.closed = split, mesh, False
            if inner is not None:
                self.base_dataloader = inner

        def __iter__(self):
            try:
                for at in range(self.batches):
                    if at == self.fails_at:
                        raise ValueError("no such sample")
                    for _ in range(2 if self.rank == 0 else 0):
                        fetched = types.SimpleNamespace(_rn50_loader=3, _num_yielded=at)
                        assert training.recorder.loading.fetch_begin(fetched) is None, "it is part of the request"
                        training.spend(FETCH_MS)
                    training.spend(BROADCAST_MS if self.rank == 0 else BROADCAST_MS + 2 * FETCH_MS)
                    yield Slice([0] * 4)
            finally:
                self.closed = True

    original = DataLoaderDispatcher.__iter__
    module = types.ModuleType("accelerate.data_loader")
    module.DataLoaderDispatcher = DataLoaderDispatcher
    monkeypatch.setitem(sys.modules, module.__name__, module)
    training.followed.pop()()
    assert DataLoaderDispatcher.__iter__ is not original
    return DataLoaderDispatcher


WAIT_MS = 2 * FETCH_MS + BROADCAST_MS
FED = {"input_wait": WAIT_MS, "forward": 5, "backward": 7, "optimizer": 2, "gap": 1}


@pytest.mark.parametrize("rank", [0, 1])
def test_the_request_for_a_dispatched_batch_is_input_wait_on_every_rank(training, dispatcher, rank):
    inner = Inner()
    training.known(inner)
    training.train(dispatcher(6, rank=rank, inner=inner))
    training.account.leave()
    assert [training.phases(n) for n in range(1, 5)] == [FED] * 4
    assert {step["loader"] for step in training.paper.steps[1:5]} == {3}
    assert not any(flags & FLAG_NO_LOADER for flags in training.paper.flags[:5])


def test_a_step_has_the_samples_of_its_rank_alone(training, dispatcher, monkeypatch):
    monkeypatch.setattr("rn50_advisor.probes.rank.loader_marks.count_samples", lambda batch, _: len(batch))
    inner = Inner()
    training.known(inner)
    training.train(dispatcher(4, inner=inner))
    training.account.leave()
    assert {step["samples"] for step in training.paper.steps[:3]} == {4}


def test_each_pass_begins_an_epoch(training, dispatcher):
    loader = dispatcher(3)
    for _ in range(3):
        training.train(loader)
    training.account.leave()
    assert [n for n, flags in enumerate(training.paper.flags) if flags & FLAG_EPOCH_START] == [0, 3, 6]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({}, {"dispatches": True, "split_batches": False}),
        ({"split": True}, {"dispatches": True, "split_batches": True}),
        ({"mesh": object()}, {}),
    ],
)
def test_the_loader_inside_is_known_to_dispatch(training, dispatcher, options, facts):
    inner = Inner()
    training.known(inner)
    training.train(dispatcher(2, inner=inner, **options))
    [loader] = training.recorder.loading.loaders.facts(training.account)
    assert {name: loader[name] for name in ("dispatches", "split_batches") if name in loader} == facts


def test_in_older_versions_the_dispatcher_is_the_loader(training, dispatcher):
    loader = dispatcher(2)
    training.known(loader)
    training.train(loader)
    [facts] = training.recorder.loading.loaders.facts(training.account)
    assert facts["dispatches"] and facts["training"]


def test_a_loop_that_breaks_closes_the_dispatchers_generator_at_once(training, dispatcher):
    loader = dispatcher(9)
    gc.disable()
    try:
        training.train(loader, most=2)
        assert loader.closed
    finally:
        gc.enable()
    training.train(dispatcher(3))
    assert training.recorder.foreign.inside is False


def test_the_loop_gets_a_generator_of_the_same_name(training, dispatcher):
    batches = iter(dispatcher(2))
    assert isinstance(batches, types.GeneratorType)
    assert batches.__name__ == "__iter__" and batches.__qualname__.endswith("DataLoaderDispatcher.__iter__")
    assert [len(batch) for batch in batches] == [4, 4]
    with pytest.raises(StopIteration):
        next(batches)


def test_a_batch_lives_no_longer_than_the_loop_keeps_it(training, dispatcher):
    batches = iter(dispatcher(3))
    known = weakref.ref(next(batches))
    assert known() is None


def test_an_error_passes_as_it_is_and_without_our_frames(training, dispatcher):
    loader = dispatcher(5, fails_at=2)
    with pytest.raises(ValueError, match="no such sample") as caught:
        training.train(loader)
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert set(frames) == {__file__}
    training.train(dispatcher(2))
    assert training.recorder.foreign.inside is False


def test_what_is_thrown_in_ends_it(training, dispatcher):
    loader = dispatcher(5)
    batches = iter(loader)
    next(batches)
    with pytest.raises(KeyError):
        batches.throw(KeyError("stop"))
    assert loader.closed


def test_a_recorder_that_has_stopped_is_not_in_between(training, dispatcher):
    training.recorder.active = False
    batches = iter(dispatcher(2))
    assert batches.gi_code.co_filename == __file__
