"""What the launcher does about signals while the job runs: it survives them, learns who sent them, and gives the job its own back.

Signals are blocked and waited for. Threads that were there before (numpy starts some) do not block them, so harmless handlers are set too.
"""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

# Whatever somebody may send to a running job. SIGKILL and SIGSTOP cannot be caught; the rest are faults of the process itself.
FORWARDED = frozenset(
    {
        *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM, signal.SIGURG, signal.SIGIO, signal.SIGPWR, signal.SIGXCPU),
        *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
    }
)
STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
WATCHED = FORWARDED | STOPS | {signal.SIGCHLD}
# The terminal sends these to its whole foreground group, never to one process.
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}) | STOPS
ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
_OVERWRITTEN = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them when it starts
# Shells and systemd leave these alone, so what they ignore we were started with; others ignore them for themselves alone.
_HONEST_PARENTS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox", "systemd"})

Handler = Any  # typeshed's private union of what signal.signal takes and returns


@dataclass(frozen=True, slots=True)
class Arrival:
    """One signal; `by_terminal` means that the kernel sent it to the whole foreground group, and so to the job."""

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

    def __enter__(self) -> SignalDesk:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        for number in WATCHED:
            handler = signal.getsignal(number)
            if handler is None:
                continue  # set by foreign code; it knows why
            self._handlers[number] = handler
            signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else self._stray)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A Ctrl-C while the recording is being closed was meant for the job, which is gone; SIGTERM and SIGHUP still end us.
        meant_for_job = {signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT} | STOPS
        while signal.sigtimedwait(meant_for_job, 0) is not None:
            pass
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

    def wait(self, timeout_s: float) -> Arrival | None:
        """The next signal, None after the timeout."""
        if self._strays:
            return Arrival(self._strays.popleft(), by_kernel=False, by_terminal=False)
        info = signal.sigtimedwait(WATCHED, timeout_s)
        if info is None:
            return None
        by_kernel = info.si_code > 0
        return Arrival(info.si_signo, by_kernel, by_kernel and info.si_signo in _FROM_TERMINAL)

    def stop_ourselves(self, number: int) -> None:
        """Stop as a process without us would have; returns when somebody continues us."""
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


def _started_ignoring(number: int) -> bool:
    """What Python found before it ignored the signal itself. An honest parent tells: a shell after `trap '' PIPE`, systemd."""
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
