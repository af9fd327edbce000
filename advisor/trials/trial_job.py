"""One job of a trial: started under the recorder, stopped and continued, and thrown away by SIGKILL, so that no handler of it saves anything."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.store.run_reader import read_recording

_MODULE = "rn50_advisor.advisor.trials.trial_process"
_STOPS_WITHIN_S = 1.0  # a signal stops a process once the kernel lets go of it
_ENDS_WITHIN_S = 20.0  # the recording is written to its end
_LAST_LINES = 12
_TIMES = ("t_start_ns", "t_end_ns")


class TrialFailed(AdvisorError):
    """The job of a trial failed, hung, or recorded no step; the hint holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to start: the command in its containment, with this environment and this request to the ranks."""

    argv: Sequence[str]
    environment: Mapping[str, str | None]
    request: Mapping[str, Any]
    overhead_budget: float = 0.02


class TrialJob:
    """A running job. `rests`: times in monotonic ns at which all of its processes were stopped and continued."""

    def __init__(self, order: Order, folder: Path) -> None:
        """Starts it. `folder` is created: it gets the run and the job's output."""
        folder.mkdir(mode=0o700)
        self.run = folder / "run"
        self.run.mkdir(mode=0o700)
        self._output = folder / "output.txt"
        self.rests: list[tuple[int, int]] = []
        self._resting_since_ns: int | None = None
        self.job_pid: int | None = None
        self.exit_code: int | None = None
        self._heard = b""
        news, tell = os.pipe()
        self._news = news
        variables = {**os.environ, **{k: v for k, v in order.environment.items() if v is not None}}
        for name, value in order.environment.items():
            if value is None:
                variables.pop(name, None)
        plan = {
            "argv": list(order.argv),
            "run_folder": str(self.run),
            "trial": dict(order.request),
            "news": tell,
            "overhead_budget": order.overhead_budget,
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                module_command(_MODULE, [json.dumps(plan)]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                pass_fds=[tell],
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the job
            )
        os.close(tell)

    # -- stopping and continuing -----------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Stops every process of the job and its recorder, also those that were started meanwhile."""
        if self._resting_since_ns is not None:
            return
        stopped: set[int] = set()
        while self._process.poll() is None and (found := self._pids() - stopped):
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
        _signal_all(self._pids(), signal.SIGCONT)

    def computes_for(self, seconds: float) -> bool:
        """Lets it compute for so long. Returns False if it has ended; raises TrialFailed if it failed."""
        self.compute()
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            if self._ended(left_s):
                if self.exit_code:
                    raise TrialFailed(f"the job ended with {self.exit_code}", self.last_words())
                return False
        return True

    def _ended(self, within_s: float) -> bool:
        """Waits for news. True once the job has ended, or the process that records it."""
        if self.exit_code is not None:
            return True
        readable, _, _ = select.select([self._news], [], [], within_s)
        if not readable:
            return False
        data = os.read(self._news, 4096)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "job":
                self.job_pid = int(rest)
            elif word == "end":
                self.exit_code = int(rest.split()[0])
        if not data and self.exit_code is None:
            self.exit_code = self._process.wait() or 1
        return self.exit_code is not None

    def _pids(self) -> set[int]:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            return {root.pid, *(child.pid for child in root.children(recursive=True))}
        return set()

    # -- what it did -----------------------------------------------------------------------------------------------------------

    def recording(self) -> Recording | None:
        """What was recorded so far, with the steps' times on a clock that stands still in its rests; None if there is nothing yet."""
        try:
            recording = read_recording(self.run)
        except AdvisorError:
            return None
        return without_rests(recording, self.rests)

    def last_words(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if line.strip())[-2000:].rsplit("\n", _LAST_LINES)[-1] if lines else ""

    def end(self) -> None:
        """Kills all that it has started. Safe to call again."""
        from rn50_advisor.advisor.trials.containment import end_tree

        if self._process.poll() is None:
            if self.job_pid is None:
                self._ended(0.0)
            if self.job_pid is not None and self.exit_code is None:
                end_tree(self.job_pid)
            self.compute()
            try:
                self._process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                end_tree(self._process.pid)
                self._process.wait()
        if self._news >= 0:
            os.close(self._news)
            self._news = -1


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
