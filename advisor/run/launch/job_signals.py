"""The launcher's signal handling while the job runs: it survives signals, learns their sender, and restores the job's own handling.

Signals are blocked and taken one by one. Threads that were there before (of somebody's library) do not block them, so harmless handlers
are set too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
# All signals that a running job may get; SIGKILL and SIGSTOP cannot be caught.
WATCHED = frozenset(map(int, signal.valid_signals())) - {signal.SIGKILL, signal.SIGSTOP}
# Faults of our own end us although they are blocked. A handler that returns would meet them again and again.
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS})
# The terminal sends these to its whole foreground group, never to one process.
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}) | STOPS
ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
_OVERWRITTEN = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them when it starts
# Shells and systemd leave these alone, so what they ignore we were started with; others ignore them for themselves alone.
_HONEST_PARENTS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox", "systemd"})

_NAP_S = 0.02  # kernels without signalfd
_SFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_MASK_WORDS = 16  # glibc's and musl's sigset_t has 1024 bits

Handler = Any  # typeshed's private union of what signal.signal takes and returns


@dataclass(frozen=True, slots=True)
class Arrival:
    """A signal as received. `by_terminal`: the kernel sent it to the whole foreground group, and so to the job."""

    number: int
    by_kernel: bool
    by_terminal: bool


class SignalDesk:
    """A context in the main thread: inside it no watched signal ends us; after it all is as before."""

    def __init__(self) -> None:
        self._mask: set[int] = set()
        self._handlers: dict[int, Handler] = {}
        self._strays: deque[int] = deque()  # arrived in a thread of somebody's library
        self._lost = {number: _started_ignoring(number) for number in _OVERWRITTEN}
        self._alarm: int | None = None  # readable while a watched signal is pending

    def __enter__(self) -> SignalDesk:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        for number in WATCHED - _FAULTS:
            handler = signal.getsignal(number)
            if handler is None:
                continue  # set by foreign code; it knows why
            self._handlers[number] = handler
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else self._stray)
        self._alarm = _pending_descriptor(WATCHED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Signals that came while the recording was being closed were meant for the job, which is gone; SIGTERM and SIGHUP still end us.
        while signal.sigtimedwait(WATCHED - {signal.SIGTERM, signal.SIGHUP}, 0) is not None:
            pass
        if self._alarm is not None:
            os.close(self._alarm)
            self._alarm = None
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def restore_in_child(self) -> None:
        """Between fork and exec: dispositions and mask of the job are those that we were started with."""
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else signal.SIG_DFL)
        for number, ignored in self._lost.items():
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        # last: what arrived since the fork is delivered now, and means the job
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def pending_end(self) -> int | None:
        """A signal that asks to end and is there already; others stay where they are."""
        info = signal.sigtimedwait(ENDING, 0)
        return info.si_signo if info else None

    def wait(self, timeout_s: float, news: int | None = None) -> Arrival | None:
        """The next signal; None after the timeout, or sooner: when the descriptor `news` can be read, and where the kernel wakes us not."""
        arrival = self._next()
        if arrival is None and timeout_s > 0:
            self._sleep(timeout_s, news)
            arrival = self._next()
        return arrival

    def _next(self) -> Arrival | None:
        if self._strays:
            return Arrival(self._strays.popleft(), by_kernel=False, by_terminal=False)
        # Never with a timeout: if SIGSTOP interrupts it, Python returns uninitialised memory (its EINTR loop).
        info = signal.sigtimedwait(WATCHED, 0)
        if info is None or info.si_signo not in WATCHED:
            return None
        if info.si_pid == os.getpid() and info.si_signo in _OVERWRITTEN:
            return None  # caused by our own write: to a closed pipe, or past a file size limit
        by_kernel = info.si_code > 0
        return Arrival(info.si_signo, by_kernel, by_kernel and info.si_signo in _FROM_TERMINAL)

    def _sleep(self, timeout_s: float, news: int | None) -> None:
        poller = select.poll()
        for descriptor in (self._alarm, news):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        poller.poll(1000 * (timeout_s if self._alarm is not None else min(timeout_s, _NAP_S)))

    def stop_ourselves(self, number: int) -> None:
        """Stops us as the signal would have stopped the job; returns when we are continued."""
        if number == signal.SIGSTOP:
            signal.raise_signal(number)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # here we stop
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        signal.signal(number, self._stray)

    def _stray(self, number: int, frame: FrameType | None) -> None:
        self._strays.append(number)


def _pending_descriptor(numbers: Collection[int]) -> int | None:
    """Returns a descriptor that polls as readable while one of these signals is pending, but is never read; None if the kernel refuses."""
    bits = ctypes.sizeof(ctypes.c_ulong) * 8
    mask = (ctypes.c_ulong * (_MASK_WORDS * 64 // bits))()
    for number in numbers:
        mask[(number - 1) // bits] |= 1 << ((number - 1) % bits)
    with contextlib.suppress(OSError, AttributeError):
        descriptor: int = ctypes.CDLL(None).signalfd(-1, mask, _SFD_FLAGS)
        return descriptor if descriptor >= 0 else None
    return None


def _started_ignoring(number: int) -> bool:
    """True if the signal was ignored before Python ignored it itself, as after a shell's `trap '' PIPE` or under systemd."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        parent = Path(f"/proc/{_parent_pid()}")
        if (parent / "comm").read_text().strip() in _HONEST_PARENTS:
            lines = (parent / "status").read_text().splitlines()
            ignored = int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)
            return bool(ignored >> (number - 1) & 1)
    return False


def _parent_pid() -> int:
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[1])
