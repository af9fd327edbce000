"""While a loader's options are exchanged, the job gets the errors that it would have had, and no others."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from numbered_samples import BATCH, FORKED, SAMPLES, Data, makers, rest, told  # noqa: E402
from rn50_advisor.probes.rank.trials.loader_swap import LoaderSwap  # noqa: E402

pytestmark = pytest.mark.torch

OURS = "/rn50_advisor/"  # in the names of the recorder's files


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
