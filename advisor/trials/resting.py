"""Stops all processes of a job and lets them go on, and takes the time at which they were stopped out of its recording."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import psutil
from numpy.typing import NDArray

from rn50_advisor.advisor.model.recording import Recording, Table

_STOPS_WITHIN_S = 1.0  # a signal stops a process once the kernel lets go of it
_TIMES = ("t_start_ns", "t_end_ns")


class Family:
    """A process and all that descend from it. `rests`: times in monotonic ns at which all of them were stopped and continued."""

    def __init__(self, pid: int) -> None:
        self.rests: list[tuple[int, int]] = []
        self._root = psutil.Process(pid)  # with its start: another process may get its pid
        self._resting_since_ns: int | None = None

    def rest(self) -> None:
        """Stops every process, also those that are started meanwhile."""
        if self._resting_since_ns is not None:
            return
        stopped: set[int] = set()
        while found := self.pids() - stopped:
            _signal_all(found, signal.SIGSTOP)
            stopped |= found
        deadline_s = time.monotonic() + _STOPS_WITHIN_S
        while any(map(_runs, stopped)) and time.monotonic() < deadline_s:
            time.sleep(0.0005)
        self._resting_since_ns = time.monotonic_ns()

    def compute(self) -> None:
        if self._resting_since_ns is None:
            return
        self.rests.append((self._resting_since_ns, time.monotonic_ns()))
        self._resting_since_ns = None
        _signal_all(self.pids(), signal.SIGCONT)

    def pids(self) -> set[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._root.is_running() and self._root.status() != psutil.STATUS_ZOMBIE:
                return {self._root.pid, *(child.pid for child in self._root.children(recursive=True))}
        return set()

    def memory_bytes(self) -> int:
        """What they use together, shared pages once."""
        used = 0
        for pid in self.pids():
            with contextlib.suppress(psutil.Error):
                used += psutil.Process(pid).memory_full_info().pss
        return used


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


def _signal_all(pids: set[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).send_signal(signum)


def without_rests(recording: Recording, rests: Sequence[tuple[int, int]]) -> Recording:
    """The recording with the steps' times on a clock that stands still in these rests. No other times are changed."""
    return replace(recording, steps={rank: _computing_times(rows, rests) for rank, rows in recording.steps.items()})


def _computing_times(rows: Table, rests: Sequence[tuple[int, int]]) -> Table:
    rows = rows.copy()
    for column in _TIMES:
        rows[column] -= rested_ns(rows[column], rests)
    return rows


def rested_ns(times: NDArray[np.int64], rests: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """How long the rests before each of these times were, in ns; of a rest that lasts at the time, the part before it."""
    rested = np.zeros(len(times), np.int64)
    for begin, end in rests:
        rested += np.clip(times, begin, end) - begin
    return rested
