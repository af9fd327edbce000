"""A loader's options are exchanged while it is read: the job gets the batches, random numbers and errors that it would have had."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import dataloader as dataloader_module  # noqa: E402

from rn50_advisor.probes.rank.trials.loader_swap import LoaderSwap  # noqa: E402

pytestmark = pytest.mark.torch

SAMPLES, BATCH = 64, 2
FORKED = {"num_workers": 2, "multiprocessing_context": "fork"}
IN_PROCESS = {"num_workers": 0}


class Data(Dataset):
    def __init__(self, broken: int = -1) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == self.broken:
            raise ValueError("a broken sample")
        return torch.tensor([index, os.getpid()])


class Eager(Sampler):
    """Draws its order when it is asked for an iterator, from the job's own generator, and counts how often that was."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        return iter([(each + self.asked) % SAMPLES for each in torch.randperm(SAMPLES).tolist()])

    def __len__(self) -> int:
        return SAMPLES


class Endless(DataLoader):
    """As in timm and ultralytics: one iterator for all epochs, which the loader itself holds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
        self.batches = super().__iter__()

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.batches)


class Repeating:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from iter(self.sampler)


class Nested(Data):
    """Reads a loader of its own for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = DataLoader(list(range(4)), batch_size=2, generator=seeded())

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index + 100 * int(sum(part.sum() for part in self.inner)), os.getpid()])


def seeded() -> Any:
    return torch.Generator().manual_seed(11)


def with_distributed(**options: Any) -> Any:
    return DataLoader(Data(), BATCH, sampler=DistributedSampler(Data(), 2, 1), **options)


def with_closure(**options: Any) -> Any:
    seen: list[int] = []

    def collate(samples: list[Any]) -> Any:
        seen.append(len(samples))
        return torch.stack(samples)

    return DataLoader(Data(), BATCH, shuffle=True, collate_fn=collate, **options)


def with_two_draws(**options: Any) -> Any:
    return DataLoader(Data(), BATCH, sampler=RandomSampler(Data(), replacement=True, generator=seeded()), **options)


def prepared(**options: Any) -> Any:
    accelerate = pytest.importorskip("accelerate.data_loader")
    # accelerate makes the loader anew: at this line
    return accelerate.prepare_data_loader(
        DataLoader(Data(), BATCH, shuffle=True, **options), num_processes=1, process_index=0, put_on_device=False
    )


def in_seconds(num_workers: int = 0, **options: Any) -> Any:
    return DataLoader(Data(), BATCH, num_workers=num_workers, timeout=60 if num_workers else 0, **options)


KINDS: dict[str, Callable[..., Any]] = {
    "shuffled": lambda **options: DataLoader(Data(), BATCH, shuffle=True, **options),
    "its own generator": lambda **options: DataLoader(Data(), BATCH, shuffle=True, generator=seeded(), **options),
    "the last dropped": lambda **options: DataLoader(Data(), 5, shuffle=True, drop_last=True, **options),
    "a batch sampler": lambda **options: DataLoader(
        Data(), batch_sampler=BatchSampler(SubsetRandomSampler(range(SAMPLES)), 3, False), **options
    ),
    "a sampler that draws at once and has a state": lambda **options: DataLoader(
        Data(), BATCH, sampler=Eager(), **options
    ),
    "drawn with replacement": with_two_draws,
    "weighted": lambda **options: DataLoader(
        Data(), BATCH, sampler=WeightedRandomSampler(torch.ones(SAMPLES), SAMPLES), **options
    ),
    "no batches": lambda **options: DataLoader(Data(), batch_size=None, shuffle=True, **options),
    "distributed": with_distributed,
    "a collate function that is a closure": with_closure,
    "a timeout": in_seconds,
    "one iterator for all epochs": lambda **options: Endless(
        Data(), BATCH, shuffle=True, generator=seeded(), **options
    ),
    "by accelerate": prepared,
    "a loader in the data set": lambda **options: DataLoader(Nested(), BATCH, shuffle=True, **options),
}
EPOCHS, SWAPS = 2, 20
OURS = "/rn50_advisor/"  # in the names of the recorder's files


@pytest.fixture
def swap(monkeypatch: pytest.MonkeyPatch) -> LoaderSwap:
    """Installed in torch for one test."""
    for name in ("_get_iterator", "__init__"):
        monkeypatch.setattr(DataLoader, name, getattr(DataLoader, name))
    monkeypatch.setattr(dataloader_module._BaseDataLoaderIter, "_rn50_loader", -1, raising=False)
    monkeypatch.setattr(
        multiprocessing.process.current_process(), "_config", {**multiprocessing.process.current_process()._config}
    )
    torch.manual_seed(0)  # what the installation may draw is none of the test's
    made = LoaderSwap(torch, fail)
    made.install()
    assert made.install() == []
    return made


def fail() -> None:
    pytest.fail(traceback.format_exc())


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """No worker and no descriptor is left, without a collection of garbage."""
    resource_tracker.ensure_running()  # these two open what multiprocessing keeps
    list(DataLoader(Data(), SAMPLES, num_workers=1, multiprocessing_context="fork"))
    gc.collect()
    gc.disable()
    before = set(multiprocessing.active_children()), descriptors()
    try:
        yield
        assert set(multiprocessing.active_children()) <= before[0] and descriptors() <= before[1]
    finally:
        gc.enable()


def descriptors() -> int:
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":  # it closes its queue when it has come to the end
            thread.join(10)
    return len(list(Path("/proc/self/fd").iterdir()))


def states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]


def told(batch: Any) -> list[int]:
    return batch[..., 0].reshape(-1).tolist()


def rest(batches: Any) -> list[int]:
    return [sample for batch in batches for sample in told(batch)]


def makers(batch: Any) -> set[int]:
    return set(batch[..., 1].reshape(-1).tolist())


def read(loader: Any, at_step: Callable[[int], object] = lambda step: None) -> tuple[list[Any], list[Any]]:
    """The batches of all epochs, and what the loop itself draws between them."""
    batches, drawn, step = [], [], 0
    for epoch in range(EPOCHS):
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        iterator = iter(loader)
        while True:
            at_step(step)
            step += 1
            try:
                batch = next(iterator)
            except StopIteration:
                assert next(iterator, None) is None
                break
            batches.append(told(batch))
            drawn.append((torch.rand(1).item(), random.random(), np.random.rand()))
        batches.append("end")
    return batches, drawn


def reset() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_swaps_keep_the_order_and_all_random_numbers(kind: str, workers: int, swap: LoaderSwap) -> None:
    made_so = FORKED if workers else IN_PROCESS
    other = {"num_workers": 1, "prefetch_factor": 3} if workers else FORKED
    reset()
    alone = *read(KINDS[kind](**made_so)), states()

    def at_step(step: int) -> None:
        if 3 <= step < 3 + SWAPS:
            said = swap.use(other if step % 2 else None)
            assert said == [], said

    reset()
    loader = KINDS[kind](**made_so)
    swapped = *read(loader, at_step), states()
    assert swapped == alone
    assert swap.facts()["swaps"] == SWAPS
    assert swap.facts()["refused"] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_that_begin_with_other_options_keep_them_too(kind: str, workers: int, swap: LoaderSwap) -> None:
    made_so = FORKED if workers else IN_PROCESS
    reset()
    alone = *read(KINDS[kind](**made_so)), states()

    reset()
    loader = KINDS[kind](**made_so)

    def at_step(step: int) -> None:
        if step == 2:
            assert swap.use(IN_PROCESS if workers else FORKED) == []
        if step == len(loader) + 4:
            assert swap.use(None) == []

    assert (*read(loader, at_step), states()) == alone
    facts = swap.facts()
    assert facts["swaps"] >= 1 and facts["active"] == []


def test_facts_tell_the_options_of_each_loader_that_was_swapped(swap: LoaderSwap) -> None:
    loader = DataLoader(Data(), BATCH, multiprocessing_context=None)
    line = test_facts_tell_the_options_of_each_loader_that_was_swapped.__code__.co_firstlineno + 1
    other = DataLoader(Data(), 4)
    batches, others = iter(loader), iter(other)
    first = next(batches), next(others)
    assert makers(first[0]) == makers(first[1]) == {os.getpid()}
    where = (str(Path(__file__)), line)
    assert swap.use({**FORKED, "prefetch_factor": 3}, where) == []
    assert os.getpid() not in makers(next(batches)) | makers(next(batches))
    assert makers(next(others)) == {os.getpid()}, "made at another line"
    done = {
        "loader": 0,
        "swaps": 1,
        "epochs": 0,
        "num_workers": 2,
        "prefetch_factor": 3,
        "pin_memory": False,
        "context": "fork",
    }
    facts = swap.facts()
    assert facts["loaders"] == [{**done, "file": where[0], "line": where[1]}]
    assert facts["active"] == [{"where": where, **FORKED, "prefetch_factor": 3}] and facts["swaps"] == 1
    assert len(batches) == SAMPLES // BATCH and batches._num_yielded == 3
    swap.use(None, where)
    pids = [makers(next(batches)) for _ in range(8)]
    assert {os.getpid()} not in pids[:6] and pids[6:] == [{os.getpid()}] * 2, "what was out came first"
    assert swap.facts()["loaders"][0]["num_workers"] == 0


def test_places_have_their_own_options(swap: LoaderSwap) -> None:
    one = DataLoader(Data(), BATCH)
    two = DataLoader(Data(), BATCH)
    line = test_places_have_their_own_options.__code__.co_firstlineno + 1
    ones, twos = iter(one), iter(two)
    next(ones), next(twos)
    assert swap.use({"num_workers": 1}, (__file__, line)) == []
    assert swap.use({"num_workers": 2}, (__file__, line + 1)) == []
    next(ones), next(twos)
    assert [each["num_workers"] for each in swap.facts()["loaders"]] == [1, 2]
    swap.use(None, (__file__, line))
    next(ones), next(twos)
    assert [each["num_workers"] for each in swap.facts()["loaders"]] == [0, 2]


def test_only_loaders_that_feed_training_are_swapped_if_no_place_is_given(swap: LoaderSwap) -> None:
    batches, evaluated = iter(DataLoader(Data(), BATCH)), iter(DataLoader(Data(), 4))
    next(batches)
    with torch.no_grad():
        next(evaluated)
        assert swap.use(FORKED) == []
        assert makers(next(evaluated)) == {os.getpid()}
        assert makers(next(iter(DataLoader(Data(), 8)))) == {os.getpid()}
    assert os.getpid() not in makers(next(batches))


def test_the_options_that_a_loader_has_change_nothing(swap: LoaderSwap) -> None:
    batches = iter(DataLoader(Data(), BATCH, **FORKED))
    next(batches)
    workers = list(batches._workers)
    assert swap.use({**FORKED, "prefetch_factor": 2}) == []
    next(batches)
    assert swap.facts()["swaps"] == 0 and [each.is_alive() for each in workers] == [True, True]


def test_new_workers_are_seeded_and_initialised_as_usual(swap: LoaderSwap, tmp_path: Path) -> None:
    def initialise(worker: int) -> None:
        (tmp_path / f"{worker}").write_text(f"{torch.utils.data.get_worker_info().seed}")

    batches = iter(DataLoader(Data(), BATCH, worker_init_fn=initialise))
    next(batches)
    state = torch.get_rng_state()
    seed = torch.empty((), dtype=torch.int64).random_().item()
    torch.set_rng_state(state)
    swap.use(FORKED)
    list(batches)
    assert [(tmp_path / name).read_text() for name in ("0", "1")] == [f"{seed}", f"{seed + 1}"]
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_of_another_start_method(swap: LoaderSwap) -> None:
    batches = iter(DataLoader(Data(), BATCH))
    found = told(next(batches))
    swap.use({"num_workers": 1, "multiprocessing_context": "spawn"})
    batch = next(batches)
    assert os.getpid() not in makers(batch)
    assert found + told(batch) + rest(batches) == list(range(SAMPLES))


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_what_cannot_be_pickled_for_a_worker_goes_on_as_it_is(swap: LoaderSwap) -> None:
    def collate(samples: list[Any]) -> Any:
        return torch.stack(samples)

    batches = iter(DataLoader(Data(), BATCH, collate_fn=collate))
    found = told(next(batches))
    swap.use({"num_workers": 1, "multiprocessing_context": "spawn"})
    assert found + rest(batches) == list(range(SAMPLES))
    (refused,) = swap.facts()["refused"]
    assert "Can't" in refused or "can't" in refused.lower(), refused
    assert swap.facts()["swaps"] == 0


@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="NOT TESTED HERE: this torch has no accelerators")
def test_pinning_is_swapped_like_workers(swap: LoaderSwap, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is pretended: what would be copied is only counted."""
    pinned = []

    def pin_memory(batch: Any, device: Any = None) -> Any:
        pinned.append(threading.current_thread() is threading.main_thread())
        return batch

    device = {
        "is_available": lambda: True,
        "current_accelerator": lambda: torch.device("cpu"),
        "current_device_index": lambda: 0,
        "set_device_index": lambda index: None,
    }
    for name, value in device.items():
        monkeypatch.setattr(torch.accelerator, name, value)
    monkeypatch.setattr(torch.utils.data._utils.pin_memory, "pin_memory", pin_memory)
    variants = ({"pin_memory": True}, {**FORKED, "pin_memory": True}, FORKED, None)
    found = []
    for step, batch in enumerate(DataLoader(Data(), BATCH)):
        found += told(batch)
        assert swap.use(variants[step // 3 % len(variants)]) == []
    assert found == list(range(SAMPLES)) and set(pinned) == {True, False}
    assert 12 <= len(pinned) < SAMPLES // BATCH
    assert {"pin_memory": False, "num_workers": 2}.items() <= swap.facts()["loaders"][0].items()
    assert not any(getattr(thread, "_target", None) is pinning_loop() for thread in threading.enumerate())


def pinning_loop() -> Any:
    return torch.utils.data._utils.pin_memory._pin_memory_loop


def test_without_order_each_batch_comes_once(swap: LoaderSwap) -> None:
    if not hasattr(DataLoader([0]), "in_order"):
        pytest.skip("NOT TESTED HERE: this torch always keeps the order")
    for _ in range(2):
        found = []
        for step, batch in enumerate(DataLoader(Data(), BATCH, in_order=False, **FORKED)):
            found += told(batch)
            swap.use({"num_workers": 1 + step % 3, "prefetch_factor": 2 + step % 2})
        assert sorted(found) == list(range(SAMPLES))


def test_two_iterators_of_one_loader_are_swapped_each_for_itself(swap: LoaderSwap) -> None:
    loader = DataLoader(Data(), BATCH)
    pairs = []
    for step, (one, other) in enumerate(zip(loader, itertools.islice(loader, 1, None), strict=False)):
        pairs.append((told(one), told(other)))
        swap.use(FORKED if step % 2 else None)
    assert pairs == [([n, n + 1], [n + 2, n + 3]) for n in range(0, SAMPLES - 2, 2)]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_left_early_leaves_no_worker(swap: LoaderSwap, workers: int) -> None:
    loader = DataLoader(Data(), BATCH, num_workers=workers)
    for _ in range(2):
        for step, _batch in enumerate(loader):
            swap.use((FORKED, None, {"num_workers": 3})[step % 3])
            if step == 6:
                break
    assert multiprocessing.active_children() == []


def test_a_third_set_of_workers_ends_one_that_waits(swap: LoaderSwap) -> None:
    batches = iter(DataLoader(Data(), 1))
    found, children = told(next(batches)), []
    for workers in (1, 2, 3, 1, 2):
        swap.use({"num_workers": workers})
        for _ in range(8):
            found += told(next(batches))
        children.append(len(multiprocessing.active_children()))
    assert found + rest(batches) == list(range(SAMPLES))
    assert children == [1, 3, 5, 4, 3]


def test_a_loader_read_in_another_thread_is_swapped_there(swap: LoaderSwap) -> None:
    found: list[int] = []
    began, goes_on = threading.Event(), threading.Event()

    def fill() -> None:
        for batch in DataLoader(Data(), BATCH):
            found.extend(told(batch))
            began.set()
            goes_on.wait()

    thread = threading.Thread(target=fill)
    thread.start()
    began.wait()
    said = swap.use(FORKED)
    goes_on.set()
    thread.join()
    assert said == [] and found == list(range(SAMPLES)) and swap.facts()["swaps"] == 1


def test_a_step_that_begins_while_an_iterator_is_made_swaps_it(
    swap: LoaderSwap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder ends a step at the start of an epoch."""
    loader = DataLoader(Data(), BATCH)
    next(iter(loader))
    kind = dataloader_module._SingleProcessDataLoaderIter
    original, said = kind.__init__, []

    def begins_a_step(self: Any, *args: Any) -> None:
        original(self, *args)
        said.extend(swap.use(FORKED))

    monkeypatch.setattr(kind, "__init__", begins_a_step)
    batches = list(loader)
    assert said == [] and rest(batches) == list(range(SAMPLES))
    assert os.getpid() not in makers(batches[0]) and swap.facts()["swaps"] == 1


# -- errors ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_errors_of_a_data_set_in_workers_arrive_and_the_epoch_can_go_on(swap: LoaderSwap, swapped: bool) -> None:
    batches = iter(DataLoader(Data(broken=21), BATCH, num_workers=0 if swapped else 2, multiprocessing_context=None))
    found, said = told(next(batches)), ""
    if swapped:
        swap.use(FORKED)
    while True:
        try:
            found += told(next(batches))
        except StopIteration:
            break
        except ValueError as error:
            said = str(error)
            frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert "Caught ValueError in DataLoader worker process" in said and said.endswith("ValueError: a broken sample\n")
    assert OURS not in said and not any(OURS in name for name in frames)
    assert found == [n for n in range(SAMPLES) if n not in (20, 21)]
    del batches
    gc.collect()  # torch's error and its frames are a cycle


def test_errors_of_a_data_set_in_this_process_arrive_unchanged(swap: LoaderSwap) -> None:
    def trace(swapped: bool) -> str:
        batches = iter(DataLoader(Data(broken=41), BATCH))
        for step in itertools.count():
            if swapped and step < 12:
                swap.use(FORKED if step % 4 == 0 else None)
            try:
                next(batches)
            except ValueError:
                return traceback.format_exc()

    alone = trace(False)
    assert "a broken sample" in alone and OURS not in alone
    assert trace(True) == alone


def test_an_error_of_the_sampler_is_the_jobs(swap: LoaderSwap) -> None:
    def indices() -> Iterator[int]:
        yield from range(8)
        raise KeyError("no more")

    class Broken:
        def __iter__(self) -> Iterator[int]:
            return indices()

    batches = iter(DataLoader(Data(), None, sampler=Broken()))
    next(batches)
    swap.use(FORKED)
    with pytest.raises(KeyError) as error:
        list(batches)
    assert not any(OURS in each.filename for each in traceback.extract_tb(error.value.__traceback__))
    with pytest.raises(KeyError):
        iter(DataLoader(Data(), None, sampler=Broken(), prefetch_factor=5, num_workers=2))
    swap.use({"num_workers": 2, "prefetch_factor": 5})
    with pytest.raises(KeyError):
        iter(DataLoader(Data(), None, sampler=Broken()))
    error.value.__traceback__ = None
    del error, batches


def test_a_worker_that_is_killed_is_torchs_own_error(swap: LoaderSwap) -> None:
    batches = iter(DataLoader(Data(), BATCH))
    next(batches)
    assert swap.use(FORKED) == []
    (victim,) = makers(next(batches))
    assert victim != os.getpid(), swap.facts()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(?s?\)? ?\d+\) (is killed|exited unexpectedly)"):
        os.kill(victim, signal.SIGKILL)
        for _ in range(1000):
            time.sleep(
                0.01
            )  # until torch's handler raises: in a fetch torch may see the end first, and then raise twice
    del batches
    gc.collect()


def test_an_interrupt_while_workers_start_is_the_jobs(swap: LoaderSwap, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(process: Any) -> None:
        if started:
            raise KeyboardInterrupt
        started.append(process)
        original(process)

    batches = iter(DataLoader(Data(), BATCH))
    found = told(next(batches))
    swap.use({"num_workers": 2})
    kind = multiprocessing.process.BaseProcess
    original = kind.start
    monkeypatch.setattr(kind, "start", start)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    started.clear()
    monkeypatch.undo()
    assert multiprocessing.active_children() == []
    assert found + rest(batches) == list(range(SAMPLES)), "it has lost nothing"


@pytest.mark.parametrize("fails_at", ["the first", "the second", "the queue"])
def test_workers_that_cannot_start_leave_the_loader_as_it_is(
    swap: LoaderSwap, monkeypatch: pytest.MonkeyPatch, fails_at: str, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    after = {"the first": 0, "the second": 1, "the queue": 0}[fails_at]

    def fails(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return original(*args)

    batches = iter(DataLoader(Data(), BATCH))
    found = told(next(batches))
    with monkeypatch.context() as patch:
        owner, name = (
            (torch.multiprocessing, "Queue")
            if fails_at == "the queue"
            else (multiprocessing.process.BaseProcess, "start")
        )
        original = getattr(owner, name)
        patch.setattr(owner, name, fails)
        assert swap.use({"num_workers": 2}) == []
        found += told(next(batches))
        found += rest(DataLoader(Data(), SAMPLES))
        calls.clear()
    assert found + rest(batches) == [0, 1, 2, 3, *range(SAMPLES), *range(4, SAMPLES)]
    (refused,) = {said.partition(" goes on as it is: ")[2] for said in swap.facts()["refused"]}
    assert refused == "BlockingIOError: [Errno 11] Resource temporarily unavailable."
    gc.collect()
    assert capfd.readouterr().err == ""


# -- refusals ----------------------------------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(torch.arange(2 * SAMPLES).view(-1, 2))


class Lazy(Data):
    """Opens its file when the first sample is read."""

    file: Any = None

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = Path(__file__).open()  # noqa: SIM115
        return super().__getitem__(index)


REFUSED = {
    "an iterable data set": (lambda: DataLoader(Stream(), BATCH), FORKED, "share its samples out by their number"),
    "persistent workers": (
        lambda: DataLoader(Data(), BATCH, persistent_workers=True, **FORKED),
        {"num_workers": 1},
        "only a restart changes them",
    ),
    "an open file": (lambda: DataLoader(Lazy(), BATCH), FORKED, "Lazy.file holds an open TextIOWrapper"),
    "pinning without a device": (lambda: DataLoader(Data(), BATCH), {"pin_memory": True}, "takes an accelerator"),
    "prefetching without workers": (lambda: DataLoader(Data(), BATCH), {"prefetch_factor": 4}, "no workers that could"),
    "more than memory": (lambda: DataLoader(Data(), BATCH), {"num_workers": 1_000_000}, "workers may take"),
    "less than no worker": (lambda: DataLoader(Data(), BATCH), {"num_workers": -1}, "no number of workers"),
    "another option": (lambda: DataLoader(Data(), BATCH), {"batch_size": 1}, "batch_size cannot be changed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_goes_on_as_it_is(swap: LoaderSwap, case: str) -> None:
    if case == "pinning without a device" and torch.cuda.is_available():
        pytest.skip("NOT TESTED HERE: there is a device")
    make, options, reason = REFUSED[case]
    loader = make()
    alone = list(map(told, loader))
    found = []
    for step, batch in enumerate(loader):
        found.append(told(batch))
        if step == 1:
            said = swap.use(options)
    assert found == alone == list(map(told, loader))
    assert len(said) == 1 and reason in said[0] and said[0].endswith(".") and "as " in said[0]
    assert swap.facts()["swaps"] == 0 and said[0] in swap.facts()["refused"]
    held = getattr(loader.dataset, "file", None)
    if held is not None:
        held.close()
    loader._iterator = None  # with its workers, if they are persistent


def test_a_refused_loader_says_where_it_is_made_and_others_are_swapped(swap: LoaderSwap) -> None:
    refused = iter(DataLoader(Stream(), BATCH))
    line = test_a_refused_loader_says_where_it_is_made_and_others_are_swapped.__code__.co_firstlineno + 1
    batches = iter(DataLoader(Data(), BATCH))
    next(refused), next(batches)
    (said,) = swap.use(FORKED)
    assert said.startswith(f"The loader made at {__file__}:{line} goes on as it is: ")
    assert os.getpid() not in makers(next(batches))


def test_iterators_of_other_classes_are_left_alone(swap: LoaderSwap) -> None:
    class Own(dataloader_module._SingleProcessDataLoaderIter):
        pass

    class Loader(DataLoader):
        def _get_iterator(self) -> Any:
            return Own(self)

    batches = iter(Loader(Data(), BATCH))
    next(batches)
    assert swap.use(FORKED) == ["No loader that feeds training is read by an iterator of torch's own."]
    where = (__file__, 7)
    assert swap.use(FORKED, where) == [f"No loader made at {__file__}:7 is read by an iterator of torch's own."]
    assert rest(batches) == list(range(2, SAMPLES))


def test_a_forked_child_exchanges_nothing_until_it_asks(swap: LoaderSwap) -> None:
    loader = DataLoader(Data(), BATCH)
    batches = iter(loader)
    next(batches)
    swap.use(FORKED)
    child = os.fork()
    if child == 0:
        ok = makers(next(batches)) == {os.getpid()} == makers(next(iter(loader))) and swap.facts()["active"] == []
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_plan_loaders_are_read_as_ever(swap: LoaderSwap) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(TensorDataset(torch.arange(8.0)), 2, pin_memory=False)
        assert [each.tolist() for (each,) in loader] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    assert swap.facts() == {"swaps": 0, "active": [], "loaders": [], "refused": []}
