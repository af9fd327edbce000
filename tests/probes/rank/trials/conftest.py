"""The exchange of loaders' options, installed in torch for one test, which leaves no worker and no descriptor."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import traceback
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from rn50_advisor.probes.rank.trials.loader_swap import LoaderSwap


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """No worker and no descriptor is left, without a collection of garbage."""
    from torch.utils.data import DataLoader

    resource_tracker.ensure_running()  # these two open what multiprocessing keeps
    list(DataLoader(list(range(4)), num_workers=1, multiprocessing_context="fork"))
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


@pytest.fixture
def swap(leaves_nothing: None, monkeypatch: pytest.MonkeyPatch) -> LoaderSwap:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, dataloader

    for name in ("_get_iterator", "__init__"):
        monkeypatch.setattr(DataLoader, name, getattr(DataLoader, name))
    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "_rn50_loader", -1, raising=False)
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
