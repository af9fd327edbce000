"""Cheap reading of /proc and /sys: descriptors stay open between ticks, contents stay bytes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

# Reports are read on systems that have neither, and take parsers from here.
try:
    import resource
except ModuleNotFoundError:
    resource = None  # type: ignore[assignment]

CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_BYTES = mmap.PAGESIZE
RECORD_BYTES = 8192  # holds any one-record file of a process; /proc/<pid>/status is the longest at about 1.5 kB


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that anybody here needs (man 5 proc_pid_stat numbers them from 1).

    A named tuple because one is made for every process at every tick, and it costs a quarter of a frozen dataclass.
    """

    comm: bytes
    state: bytes
    parent_pid: int
    group: int
    session: int
    cpu_s: float  # fields 14 and 15: all threads, exited ones included
    children_cpu_s: float  # fields 16 and 17: children that it has waited for, theirs included
    threads: int
    start_ticks: int  # field 22, since boot; with the pid it names a process for good
    rss_bytes: int
    exit_code: int  # field 52 as waitpid would give it; 0 while the process lives


def parse_stat(text: bytes) -> Stat:
    """Raises ValueError or IndexError on anything that is no stat line. The name may hold blanks and parentheses."""
    opening, closing = text.index(b"("), text.rindex(b")")
    f = text[closing + 2 :].split()
    return Stat(
        comm=text[opening + 1 : closing],
        state=f[0],
        parent_pid=int(f[1]),
        group=int(f[2]),
        session=int(f[3]),
        cpu_s=(int(f[11]) + int(f[12])) / CLOCK_TICKS,
        children_cpu_s=(int(f[13]) + int(f[14])) / CLOCK_TICKS,
        threads=int(f[17]),
        start_ticks=int(f[19]),
        rss_bytes=int(f[21]) * PAGE_BYTES,
        exit_code=int(f[49]) if len(f) > 49 else 0,
    )


def parse_keyed(text: bytes) -> dict[bytes, int]:
    """`key value` or `key: value unit` lines with whole numbers, as in vmstat, meminfo, cpu.stat, io; other lines are skipped."""
    values = {}
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].lstrip(b"-").isdigit():
            values[words[0].rstrip(b":")] = int(words[1])
    return values


def parse_cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as the kernel writes sets of CPUs or nodes."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read_text(path: Path) -> str | None:
    """A small file that is read once; None where it is absent or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


class KeptFiles:
    """Files below `root` kept open and read again by pread; those of processes grouped by pid (0: of no process).

    A kept descriptor of /proc/<pid> belongs to that process for good: should the pid be used again, reading fails instead of lying.
    Beyond `limit` descriptors files are opened and closed for each reading, so that the agent never runs out of them.
    """

    def __init__(self, root: Path = Path("/"), limit: int | None = None) -> None:
        self._root = str(root).rstrip("/")
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = limit if limit is not None else (min(soft, 4096) if soft > 0 else 4096) // 5
        self._kept: dict[int, dict[str, int]] = {}
        self._count = 0

    def read(self, pid: int, name: str, size: int = RECORD_BYTES) -> bytes:
        """One record of /proc/<pid>/<name>, or of <root>/<name> for pid 0. Raises OSError."""
        fd = self._kept.get(pid, {}).get(name)
        if fd is not None:
            try:
                return os.pread(fd, size, 0)
            except OSError:
                self._drop(pid, name)
                if pid:
                    raise
        fd = self._open(pid, name)
        try:
            text = os.pread(fd, size, 0)
        except BaseException:
            os.close(fd)
            raise
        self._keep_or_close(pid, name, fd)
        return text

    def read_all(self, pid: int, name: str) -> bytes:
        """A file of many records, which the kernel hands out a buffer at a time. Raises OSError."""
        text = self.read(pid, name, 65536)
        fd = self._kept.get(pid, {}).get(name)
        if fd is None:
            return self._read_once(pid, name)
        while more := os.pread(fd, 65536, len(text)):
            text += more
        return text

    def prune(self, pids: Collection[int]) -> None:
        """Let go of every process that is not among `pids`."""
        for pid in [pid for pid in self._kept if pid and pid not in pids]:
            for fd in self._kept.pop(pid).values():
                os.close(fd)
                self._count -= 1

    def close(self) -> None:
        self.prune(())
        for fd in self._kept.pop(0, {}).values():
            os.close(fd)
        self._count = 0

    def _open(self, pid: int, name: str) -> int:
        path = f"{self._root}/proc/{pid}/{name}" if pid else f"{self._root}/{name}"
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _read_once(self, pid: int, name: str) -> bytes:
        fd = self._open(pid, name)
        try:
            text = b""
            while more := os.pread(fd, 65536, len(text)):
                text += more
            return text
        finally:
            os.close(fd)

    def _keep_or_close(self, pid: int, name: str, fd: int) -> None:
        if self._count >= self._limit:
            os.close(fd)
            return
        self._kept.setdefault(pid, {})[name] = fd
        self._count += 1

    def _drop(self, pid: int, name: str) -> None:
        os.close(self._kept[pid].pop(name))
        self._count -= 1
