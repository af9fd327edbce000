"""A loader is left alone for what its dataset holds, and where its workers would find too little room."""

from __future__ import annotations

import functools
import io
import resource
import socket
import sqlite3
import threading
import types
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Subset  # noqa: E402

from rn50_advisor.probes.rank.trials import swap_refusals  # noqa: E402
from rn50_advisor.probes.rank.trials.loader_relay import LoaderParts  # noqa: E402

GIB = 1 << 30


class Holder(list):
    """A dataset with one attribute."""

    def __init__(self, held: Any = None) -> None:
        super().__init__(range(8))
        self.held = held

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no code of the dataset is to be run")


def pooled() -> Any:
    pool = ThreadPoolExecutor(1)
    pool.submit(len, "").result()
    return pool


HELD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda _: None, ""),
    "a path": (lambda path: path / "a", ""),
    "an array": (lambda _: torch.zeros(4), ""),
    "a buffer in memory": (lambda _: io.BytesIO(b"abc"), ""),
    "the standard output": (lambda _: io.FileIO(1, closefd=False), ""),
    "a module": (lambda _: io, ""),
    "a lock": (lambda _: threading.Lock(), ""),
    "an open file": (lambda path: (path / "a").open("wb"), "an open BufferedWriter"),
    "a text file in a list": (lambda path: [(path / "a").open("w")], "an open TextIOWrapper"),
    "a file in an object": (lambda path: types.SimpleNamespace(file=(path / "a").open("wb", 0)), "an open FileIO"),
    "a socket in a dict": (lambda _: {"there": socket.socket()}, "an open socket"),
    "a database": (lambda path: sqlite3.connect(path / "a"), "an open Connection"),
    "an archive": (lambda path: zipfile.ZipFile(path / "a", "w"), "an open ZipFile"),
    "a running thread": (lambda _: threading.Thread(target=threading.Event().wait, args=(1,)), "a running thread"),
    "threads of a pool": (lambda _: pooled(), "running threads"),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_data_set_holds_open(name: str, tmp_path: Path) -> None:
    make, found = HELD[name]
    held = make(tmp_path)
    if isinstance(held, threading.Thread):
        held.start()
    try:
        expected = f"Holder.held holds {found}" if found else ""
        assert swap_refusals.open_handle([Holder(held)]) == expected
    finally:
        close = getattr(held, "shutdown" if isinstance(held, ThreadPoolExecutor) else "close", None)
        if close is not None:
            close()
            assert swap_refusals.open_handle([Holder(held)]) in ("", "Holder.held holds an open Connection")


def wanted(loader: Any, **options: Any) -> tuple[LoaderParts, Any]:
    parts = LoaderParts(loader)
    return parts, parts.options().changed(options)


def test_a_file_in_a_data_set_within_another_is_found(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file:
        parts, options = wanted(DataLoader(Subset(Holder(file), [1, 2])), num_workers=1)
        reason = swap_refusals.why_not(parts, options, batch=(0, 0))
    assert reason == "Holder.held holds an open TextIOWrapper, which workers must not share with this process"
    assert swap_refusals.why_not(parts, options, batch=(0, 0)) == ""


@pytest.mark.parametrize(
    "options,fault",
    [
        ({}, ""),
        ({"num_workers": None, "pin_memory": None, "prefetch_factor": None, "multiprocessing_context": None}, ""),
        ({"num_workers": 2, "prefetch_factor": 4, "multiprocessing_context": "fork"}, ""),
        ({"num_workers": True}, "num_workers is True, which is no number of workers"),
        ({"prefetch_factor": 0}, "prefetch_factor is 0, which is no number of batches"),
        ({"shuffle": True, "drop_last": True}, "drop_last, shuffle cannot be changed while a loader is read"),
    ],
)
def test_options_that_no_loader_can_have(options: dict[str, Any], fault: str) -> None:
    assert swap_refusals.fault_of(options) == fault


def test_a_way_to_start_processes_that_the_system_does_not_have() -> None:
    fault = swap_refusals.fault_of({"multiprocessing_context": "clone"})
    assert fault.startswith("multiprocessing_context is 'clone', and this system has ")


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMORY = "MemTotal: 99 kB\nMemAvailable: %d kB\n"
LIMITS = {
    "no limit": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 8 * GIB),
    "a limit of a parent": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/a/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
        },
        GIB + GIB // 2,
    ),
    "an older kind": (
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        },
        GIB,
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_free_memory_is_the_least_of_the_machine_and_its_limits(case: str, tmp_path: Path) -> None:
    texts, free = LIMITS[case]
    root = files(tmp_path, {"proc/meminfo": MEMORY % (8 * GIB // 1024), **texts})
    assert swap_refusals.free_memory_bytes(str(root)) == free
    assert swap_refusals.free_memory_bytes(str(tmp_path / "nowhere")) is None


def test_workers_that_would_take_too_much_memory(tmp_path: Path) -> None:
    root = str(files(tmp_path, {"proc/meminfo": MEMORY % (GIB // 1024)}))
    parts, few = wanted(DataLoader(Holder()), num_workers=4, multiprocessing_context="fork")
    judge = functools.partial(swap_refusals.why_not, parts, root=root)
    assert judge(few, batch=(1000, 1)) == ""
    _, many = wanted(DataLoader(Holder()), num_workers=30, multiprocessing_context="fork")
    assert judge(many, batch=(1000, 1)).startswith("30 workers may take 1.0 GB of memory, and 1.1 GB is free")
    _, fresh = wanted(DataLoader(Holder()), num_workers=4, multiprocessing_context="spawn")
    assert judge(fresh, batch=(1000, 1)).startswith("4 workers may take 1.3 GB")
    assert judge(few, batch=(100_000_000, 1)).startswith("4 workers may take 1.3 GB")
    files(tmp_path, {"proc/7/smaps_rollup": "00-ff ---p 0 0 0 [rollup]\nRss: 9 kB\nPrivate_Dirty: 300000 kB\n"})
    assert judge(few, batch=(0, 0), worker=7).startswith("4 workers may take 1.2 GB")


def test_batches_that_do_not_fit_into_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_refusals.os, "statvfs", lambda path: types.SimpleNamespace(f_bavail=16, f_frsize=1 << 20))
    parts, options = wanted(DataLoader(Holder()), num_workers=2, prefetch_factor=3)
    judge = functools.partial(swap_refusals.why_not, parts, options, root=str(tmp_path))
    assert judge(batch=(1 << 20, 1)) == ""
    assert judge(batch=(2 << 20, 1)) == "8 batches of 2.1 MB may be out, and /dev/shm has 16.8 MB free"


def test_more_tensors_than_files_that_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    parts, options = wanted(DataLoader(Holder()), num_workers=2, prefetch_factor=3)
    assert swap_refusals.why_not(parts, options, batch=(8, 2)) == ""
    reason = swap_refusals.why_not(parts, options, batch=(8, 60))
    assert reason.startswith("it may open 370 more files, and ") and reason.endswith(" of 256 are left")
