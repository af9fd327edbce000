"""Cheap reading of /proc and /sys: descriptors stay open between ticks, contents stay bytes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

# Code that reads reports imports parsers from here, also on systems without `resource` and `sysconf`.
try:
    import resource
except ModuleNotFoundError:
    resource = None  # type: ignore[assignment]

CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_BYTES = mmap.PAGESIZE
RECORD_BYTES = 8192  # holds any one-record file of a process; /proc/<pid>/status is the longest at about 1.5 kB


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that are used here (man 5 proc_pid_stat numbers them from 1).

    A named tuple, because every tick makes one for every process and it costs a quarter of a frozen dataclass.
    """

    comm: bytes
    state: bytes
    parent_pid: int
    group: int
    session: int
    cpu_s: float  # fields 14 and 15: all threads, exited ones included
    children_cpu_s: float  # fields 16 and 17: children that it has waited for, and their children
    threads: int
    start_ticks: int  # field 22, since boot; together with the pid it identifies a process
    rss_bytes: int
    exit_code: int  # field 52, a status like waitpid's; 0 while the process lives


def parse_stat(text: bytes) -> Stat:
    """Parses a stat line. Raises ValueError or IndexError on other text. The name may contain blanks and parentheses."""
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
    """Parses lines `key value` or `key: value unit` with whole numbers (vmstat, meminfo, cpu.stat, io). Skips other lines."""
    values = {}
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].lstrip(b"-").isdigit():
            values[words[0].rstrip(b":")] = int(words[1])
    return values


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parses the kernel's notation of a set of CPUs or nodes, such as `0-3,8`."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read_text(path: Path) -> str | None:
    """Returns the text of a small file; None if it is absent or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


class KeptFiles:
    """Keeps files below `root` open and rereads them with pread, grouped by pid (0: not of a process).

    An open descriptor of /proc/<pid> stays bound to that process: if the pid is reused, reading fails and never returns another process's
    data. Beyond `limit` descriptors, each read opens and closes its file, so the agent never runs out of descriptors.
    """

    def __init__(self, root: Path = Path("/"), limit: int | None = None) -> None:
        self._root = str(root).rstrip("/")
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = limit if limit is not None else (min(soft, 4096) if soft > 0 else 4096) // 5
        self._kept: dict[int, dict[str, int]] = {}
        self._count = 0

    def read(self, pid: int, name: str, size: int = RECORD_BYTES) -> bytes:
        """Reads up to `size` bytes of /proc/<pid>/<name>, or of <root>/<name> for pid 0. Raises OSError."""
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
        """Reads a whole file that the kernel returns one buffer at a time. Raises OSError."""
        text = self.read(pid, name, 65536)
        fd = self._kept.get(pid, {}).get(name)
        if fd is None:
            return self._read_once(pid, name)
        while more := os.pread(fd, 65536, len(text)):
            text += more
        return text

    def prune(self, pids: Collection[int]) -> None:
        """Closes the files of all processes outside `pids`."""
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
