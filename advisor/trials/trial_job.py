"""One job of a trial: started under the recorder, stopped and continued, and thrown away.

It ends by SIGKILL, so that no handler of it saves anything.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.run.rings.own_folder import start_ticks
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.trials.keeper import Keeper, end_with_jobs, ring_folder_of
from rn50_advisor.advisor.trials.resting import Family, without_rests
from rn50_advisor.advisor.trials.tree_end import end_tree

_MODULE = "rn50_advisor.advisor.trials.trial_process"
_ENDS_WITHIN_S = 20.0  # the recording is written to its end
_LAST_LINES = 12


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
    """A running job and its recorder."""

    def __init__(self, order: Order, folder: Path, keeper: Keeper | None = None) -> None:
        """Starts it. `folder` is created: it gets the run and the job's output. `keeper` ends it if we are killed."""
        folder.mkdir(mode=0o700)
        self.run = folder / "run"
        self.run.mkdir(mode=0o700)
        self._output = folder / "output.txt"
        self.job_pid: int | None = None
        self._job_ticks: int | None = None  # its start: another process may get its pid
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
        self._keeper = keeper
        if keeper is not None:
            keeper.watch(self._process.pid)
        self.family = Family(self._process.pid)

    def computes_for(self, seconds: float) -> bool:
        """Lets it compute for so long. Returns False if it has ended; raises TrialFailed if it failed."""
        self.family.compute()
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
                self._job_ticks = start_ticks(self.job_pid)
            elif word == "end":
                self.exit_code = int(rest.split()[0])
        if not data and self.exit_code is None:
            self.exit_code = self._process.wait() or 1
        return self.exit_code is not None

    def recording(self) -> Recording | None:
        """What was recorded so far, with the steps' times on a clock that stands still in its rests; None if there is nothing yet."""
        try:
            recording = read_recording(self.run)
        except AdvisorError:
            return None
        return without_rests(recording, self.family.rests)

    def last_words(self) -> str:
        lines = [line for line in self._output.read_text(errors="replace").splitlines() if line.strip()]
        return "\n".join(lines[-_LAST_LINES:])

    def end(self) -> None:
        """Kills all that it has started. Safe to call again."""
        if self._process.poll() is None:
            self._ended(0.0)
            if self.job_pid is not None and self._job_ticks == start_ticks(self.job_pid) is not None:
                end_tree(self.job_pid, ring_folder_of(self.job_pid))
            self.family.compute()
            try:
                self._process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                end_with_jobs(self._process.pid)
                self._process.wait()
        if self._news >= 0:
            os.close(self._news)
            self._news = -1
            if self._keeper is not None:
                self._keeper.forget(self._process.pid)
