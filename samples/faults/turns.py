"""Runs a job with its fault and the job with the fix in turns: while one computes, every process of the other is stopped.

A machine's speed can differ by half from one minute to the next, so that two runs one after the other tell as much about the minute as
about the fix. Of equal jobs, measured in turns of half a second, one was 0.95 to 1.05 times as fast as the other (five pairs); in turns of
two seconds 0.81 to 1.35 times (four).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.store.run_reader import read_recording
from samples.faults.observe import JobWentWrong, command, last_words, run_folder, running, stop
from samples.faults.scenario import Conditions, Job

TURN_S = 0.5
_STOPS_WITHIN_S = 1.0  # a signal stops a process once the kernel lets go of it
LONGEST_S = 45.0  # that either job computes
_TIMES = ("t_start_ns", "t_end_ns")


@dataclass(slots=True)
class Player:
    """A job that computes and rests. `rests`: times in monotonic ns at which all of its processes were stopped and continued."""

    process: subprocess.Popen[bytes]
    folder: Path
    rests: list[tuple[int, int]] = field(default_factory=list)
    resting_since_ns: int | None = None

    def rest(self) -> None:
        """Stops every process of the job, also those that were started meanwhile."""
        stopped: set[int] = set()
        while self.process.poll() is None and (found := self._pids() - stopped):
            _signal_all(found, signal.SIGSTOP)
            stopped |= found
        deadline_s = time.monotonic() + _STOPS_WITHIN_S
        while any(map(_runs, stopped)) and time.monotonic() < deadline_s:
            time.sleep(0.0005)
        self.resting_since_ns = time.monotonic_ns()

    def compute(self) -> None:
        if self.resting_since_ns is None:
            return
        self.rests.append((self.resting_since_ns, time.monotonic_ns()))
        self.resting_since_ns = None
        _signal_all(self._pids(), signal.SIGCONT)

    def turn(self) -> bool:
        """Computes for one turn. Returns False if the job has ended. Raises JobWentWrong if it failed."""
        self.compute()
        try:
            code = self.process.wait(TURN_S)
        except subprocess.TimeoutExpired:
            self.rest()
            return True
        if code != 0:
            raise JobWentWrong(f"exit code {code}{last_words(self.folder)}")
        return False

    def _pids(self) -> set[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            return {root.pid, *(child.pid for child in root.children(recursive=True))}
        return set()


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


def _signal_all(pids: set[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).send_signal(signum)


def in_turns(jobs: Sequence[Job], conditions: Conditions, folder: Path) -> list[Recording]:
    """Runs the jobs until one has ended, or each has computed for LONGEST_S. Returns their recordings, on clocks without the rests.

    `folder` exists. Raises JobWentWrong if a job fails or records nothing.
    """
    players = list[Player]()
    with contextlib.ExitStack() as stack:
        try:
            for number, job in enumerate(jobs):
                place = folder / f"turns-{number}"
                (place / "out").mkdir(parents=True)
                process = stack.enter_context(running(command(job, conditions, place), job.environment, place))
                players.append(Player(process, place))
                players[-1].rest()
            rounds = int(LONGEST_S / TURN_S)
            while rounds and all(player.turn() for player in players):
                rounds -= 1
        finally:
            for (
                player
            ) in players:  # a job that rests does not hear that it is to end, and the first one left kills the other
                player.compute()
                stop(player.process)
    return [without_rests(read_recording(run_folder(player.folder)), player.rests) for player in players]


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
