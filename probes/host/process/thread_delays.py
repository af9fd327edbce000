"""Run-queue delay of a process, summed over its threads because the kernel has no such sum."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

# A rank of a GPU job has hundreds of threads, and each thread is a file to read: 10 us in 20 ms is 1/2000 of a core
# per rank.
PERIOD_NS_PER_THREAD = 20_000_000


class ThreadDelays:
    """One counter per process. The delay of ended threads stays in it, up to their last reading."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._due_ns: dict[int, int] = {}
        self._seen_ns: dict[int, dict[str, int]] = {}
        self._total_ns: dict[int, int] = {}

    def read(self, now_ns: int, pid: int, threads: int) -> float | None:
        """Seconds of delay so far. None if it is not due, the process is gone, or the kernel does not count delays."""
        if now_ns < self._due_ns.get(pid, 0):
            return None
        self._due_ns[pid] = now_ns + threads * PERIOD_NS_PER_THREAD
        before, now = self._seen_ns.get(pid, {}), {}
        folder = f"{self._proc}/{pid}/task"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - a Path for each of hundreds of threads
        except OSError:
            return None
        for name in names:
            delay_ns = _delay_ns(f"{folder}/{name}/schedstat")
            if delay_ns is not None:
                now[name] = delay_ns
        if not now:
            return None
        # if the number fell, another thread has the id now
        grown = sum(ns - before.get(name, 0) if ns >= before.get(name, 0) else ns for name, ns in now.items())
        self._seen_ns[pid] = now
        self._total_ns[pid] = self._total_ns.get(pid, 0) + grown
        return self._total_ns[pid] / 1e9

    def prune(self, pids: Collection[int]) -> None:
        """Forgets all processes outside `pids`."""
        for pid in [pid for pid in self._due_ns if pid not in pids]:
            for kept in (self._due_ns, self._seen_ns, self._total_ns):
                kept.pop(pid, None)


def _delay_ns(path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        ran, delay = os.read(fd, 128).split()[:2]
        return int(delay) if ran != b"0" or delay != b"0" else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)
