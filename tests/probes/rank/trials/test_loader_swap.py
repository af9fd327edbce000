"""A loader's options are exchanged while it is read, where it was made and in the process that reads it, or refused with a reason."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402
from torch.utils.data import dataloader as dataloader_module  # noqa: E402

from numbered_samples import BATCH, FORKED, SAMPLES, Data, makers, rest, told  # noqa: E402
from rn50_advisor.probes.rank.trials.loader_swap import LoaderSwap  # noqa: E402

pytestmark = pytest.mark.torch


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
