"""Detects from the kernel's view of a sleeping thread whether it waits for its Python interpreter's lock (the GIL).

A thread that is kept out asks for the lock again every few milliseconds: it sleeps in a futex of the interpreter's own memory, with a
timeout. No other wait does: locks of Python code lie on the heap, those of libraries in theirs, and both mostly without a timeout.
Neither a wait for a GPU nor one for another rank can look like it. One look reads one line of /proc; the thread is not stopped, nor is
its memory read.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path

# System call numbers of futex(2). (asm/unistd_64.h, asm-generic/unistd.h)
_FUTEX = {"x86_64": 202, "aarch64": 98}
_COMMAND = 0x7F  # without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
_WAITS = (0, 9)  # FUTEX_WAIT, FUTEX_WAIT_BITSET
_PYTHON = re.compile(r"/(lib)?python\d[^/]*$")

Ranges = tuple[tuple[int, int], ...]


class NoInterpreter(Exception):
    """The process's interpreter could not be located; says why."""


def timed_wait(line: str, machine: str | None = None) -> int | None:
    """The address at which a thread waits with a timeout, from its /proc/.../syscall; None where it does something else."""
    words = line.split()
    if len(words) < 5 or words[0] != str(_FUTEX.get(machine or platform.machine())):
        return None  # also "running", and "-1 ..." outside of any call
    address, operation, timeout = int(words[1], 16), int(words[2], 16), int(words[4], 16)
    return address if operation & _COMMAND in _WAITS and timeout else None


def interpreter_memory(maps: str) -> Ranges:
    """Where the interpreter keeps what is its own, from /proc/<pid>/maps: its library's or program's data, and what follows unnamed."""
    found: list[tuple[int, int]] = []
    follows = -1  # where such a mapping ended just now
    for line in maps.splitlines():
        words = line.split(None, 5)
        start, end = (int(part, 16) for part in words[0].split("-"))
        named = len(words) > 5
        if (named and _PYTHON.search(words[5].strip())) or (not named and start == follows):
            follows = end
            if "w" in words[1]:
                found.append((start, end))
    return tuple(found)


class InterpreterSight:
    """One thread, looked at again and again. Raises OSError where the kernel does not let us, or the thread is gone."""

    def __init__(self, pid: int, thread: int, *, proc: Path = Path("/proc")) -> None:
        """Raises NoInterpreter on a processor whose system calls we do not know."""
        if platform.machine() not in _FUTEX:
            raise NoInterpreter(f"the system calls of {platform.machine()} are not known")
        self._maps = proc / str(pid) / "maps"
        self._file: int | None = os.open(proc / str(pid) / "task" / str(thread) / "syscall", os.O_RDONLY)
        self._memory: Ranges | None = None

    def waits(self) -> bool:
        """True if the thread waits for the interpreter now. Raises NoInterpreter if the process has none."""
        assert self._file is not None
        address = timed_wait(os.pread(self._file, 256, 0).decode(errors="replace"))
        if address is None:
            return False
        if self._memory is None:  # thousands of lines in a process with torch: read once, and only when it matters
            self._memory = interpreter_memory(self._maps.read_text(errors="replace"))
            if not self._memory:
                raise NoInterpreter("no Python was found among its libraries")
        return any(start <= address < end for start, end in self._memory)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
