"""Several threads that train: only one is accounted for, and its marks are noted on no tape that the others might write to."""

from __future__ import annotations

import sys
import threading
import types
from pathlib import Path

import pytest

from rn50_advisor.probes.rank.patches import torch_patches
from rn50_advisor.probes.rank.tape import BATCH, FETCH
from stub_training import Training, torch


def in_another_thread(call: object, *args: object) -> None:
    thread = threading.Thread(target=call, args=args)  # type: ignore[arg-type]
    thread.start()
    thread.join()


@pytest.mark.parametrize("mark", ["backward", "optimizer"])
def test_where_another_thread_trains_too_nothing_is_noted(tmp_path: Path, mark: str) -> None:
    training = Training(tmp_path)
    assert training.noted()
    if mark == "backward":
        in_another_thread(training.recorder.backward_begin)
    else:
        in_another_thread(training.recorder.optimizer_begin, object())
    assert not training.noted()


def test_another_thread_that_fetches_is_nothing_to_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    in_another_thread(training.recorder.fetch_begin, types.SimpleNamespace(_num_yielded=3))
    assert training.noted()


def test_where_no_mark_would_find_a_tape_full_nothing_is_noted(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.account.optimizers, training.account.last_loader = 0, -1
    assert not training.noted()
    training.account.last_loader = 0
    assert training.noted()


def test_an_iterator_that_another_thread_makes_where_a_noted_one_was_is_not_taken_for_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    tape, there = training.recorder.tape, types.SimpleNamespace()
    for made, noted in ((types.SimpleNamespace(), True), (there, False)):
        tape.start(training.account, 3, None, iterator=id(there))
        in_another_thread(training.recorder.iterator_made, made, object(), 0)
        assert (tape.iterator == id(there)) is noted


class Batches:
    """An iterator as torch's are made, of batches without end."""

    def __init__(self, loader: object) -> None:
        self.loader = loader

    def __next__(self) -> list[object]:
        return []

    _num_yielded = 1

    def _reset(self, loader: object) -> None: ...

    def _shutdown_workers(self) -> None: ...


@pytest.fixture
def dataloader(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """In place of `torch.utils.data.dataloader`."""
    kinds = {f"_{kind}DataLoaderIter": type(kind, (Batches,), {}) for kind in ("SingleProcess", "MultiProcessing")}
    module = types.SimpleNamespace(
        _BaseDataLoaderIter=type("Base", (Batches,), {}), DataLoader=type("DataLoader", (), {}), **kinds
    )
    for name, standing_in in {"torch": torch, "torch.utils": torch, "torch.utils.data": module}.items():
        monkeypatch.setitem(sys.modules, name, standing_in)  # type: ignore[arg-type]
    module.dataloader = module
    return module


def test_only_the_training_thread_notes_fetches_and_those_of_its_own_iterator(
    tmp_path: Path, dataloader: types.SimpleNamespace
) -> None:
    training = Training(tmp_path)
    torch_patches._loader(types.SimpleNamespace(is_grad_enabled=lambda: True, Tensor=object), training.recorder)
    tape = training.recorder.tape
    own, other = (dataloader._BaseDataLoaderIter(None) for _ in range(2))
    training.account.fewest_rounds = 1
    tape.start(training.account, 3, None, iterator=id(own))
    in_another_thread(next, own)
    in_another_thread(next, other)
    assert not any(tape.marks) and tape.on
    next(own)
    assert [kind for kind, times in enumerate(tape.marks) if times] == [BATCH, FETCH]
    next(other)
    assert not tape.on, "its fetch is told at once, and what was noted before"
    assert training.recorder.errors == 0
