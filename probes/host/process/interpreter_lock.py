"""Detects a thread that waits for its Python interpreter's lock (the GIL), from the kernel's view of the sleeping thread.

A thread that waits for the GIL asks again every few milliseconds: it sleeps, with a timeout, in a futex in the interpreter's own memory.
No other wait has these properties: locks of Python code are on the heap, locks of libraries in the libraries' memory, and both mostly
have no timeout. A wait for a GPU or for another rank cannot have them. Each sample reads one line of /proc. The thread is not stopped and
its memory is not read.
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
    """The process's interpreter could not be located; the message says why."""


def timed_wait(line: str, machine: str | None = None) -> int | None:
    """Address of the futex on which a thread waits with a timeout, from its /proc/.../syscall line. None if it does anything else."""
    words = line.split()
    if len(words) < 5 or words[0] != str(_FUTEX.get(machine or platform.machine())):
        return None  # also "running", and "-1 ..." outside a system call
    address, operation, timeout = int(words[1], 16), int(words[2], 16), int(words[4], 16)
    return address if operation & _COMMAND in _WAITS and timeout else None


def interpreter_memory(maps: str) -> Ranges:
    """Writable memory of the interpreter, from /proc/<pid>/maps: the data of its library or program, and unnamed mappings right behind."""
    found: list[tuple[int, int]] = []
    follows = -1  # end of the last such mapping
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
    """Samples one thread repeatedly. Raises OSError if the kernel denies access or the thread is gone."""

    def __init__(self, pid: int, thread: int, *, proc: Path = Path("/proc")) -> None:
        """Raises NoInterpreter on a processor whose system call numbers are unknown."""
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
        if self._memory is None:  # thousands of lines in a process with torch: read once, and only when needed
            self._memory = interpreter_memory(self._maps.read_text(errors="replace"))
            if not self._memory:
                raise NoInterpreter("no Python was found among its libraries")
        return any(start <= address < end for start, end in self._memory)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
