"""The launcher's handle on the recording process, which gets messages about the job; the launcher waits only for its end.

Drivers, databases and arrays are loaded only there, so that a crash in them costs the recording, not the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.run.child_talk import ChildTalk
from rn50_advisor.advisor.run.launch.job_end import describe_error, describe_status
from rn50_advisor.advisor.run.recording_plan import RecordingPlan

_MODULE = "rn50_advisor.advisor.run.recording_process"
_UNSENT_MAX = 64 << 10  # bytes of unread requests for a stopped process; more are dropped
_LINE_MAX = 500  # characters
_ENDS_WITHIN_S = 1.0  # once it has written everything down


class Companion:
    """Used by the launcher; no method raises."""

    def __init__(self, plan: RecordingPlan, job_pid: int) -> None:
        self._plan = plan
        self._job_pid = job_pid
        self._talk: ChildTalk | None = None
        self._recorded = False
        self._done = False
        self._complaint: str | None = None
        self._warned = False
        self._began_cpu_s = time.process_time()  # our cost from now on counts as overhead

    def start(self) -> None:
        if self._plan.run_folder is None:
            return
        try:
            self._talk = ChildTalk(_MODULE, "record", plan=self._plan.as_json(), job_pid=self._job_pid)
        except Exception as error:  # noqa: BLE001 - the job is running and goes on
            self._complain(f"the job runs unrecorded: {describe_error(error)}", at_once=True)

    def pids(self) -> frozenset[int]:
        """The recording process, until it has been reaped."""
        return frozenset() if self._talk is None or self._talk.status is not None else frozenset({self._talk.pid})

    @property
    def descriptor(self) -> int | None:
        """Readable when `look` has something to read."""
        return None if self._talk is None else self._talk.answers

    def asked_to_end(self, number: int) -> None:
        """Reports a request to end the job, so that processes ending soon after do not count as failed."""
        if self._talk is not None and self._talk.unsent_bytes < _UNSENT_MAX:
            self._talk.post(event="asked_to_end", t_ns=time.perf_counter_ns(), signal=number)

    def look(self) -> None:
        """Reads its answers, sends pending messages, reaps it."""
        if self._talk is None:
            return
        self._talk.send()
        for answer in self._talk.heard():
            event = answer.get("event")
            if event == "recorded":
                self._recorded = True
            elif event == "done":
                self._done = True
            elif event == "complaint":
                self._complain(str(answer.get("text")), at_once=answer.get("at_once") is True)
        self._talk.reap()

    def send_signal(self, number: int) -> None:
        """Stops and continues it together with us."""
        if self._talk is not None and self._talk.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._talk.pid, number)

    def finish(self, exit_code: int | None, number: int | None, ended_ns: int) -> tuple[bool, str | None]:
        """Waits, with a bound, for the recording to end. Returns whether there is one, and why it is missing or incomplete."""
        end = {
            "exit_code": exit_code,
            "signal": number,
            "t_ns": ended_ns,
            "cpu_s": time.process_time() - self._began_cpu_s,
        }
        deadline_s = time.monotonic() + self._plan.options.close_within_s
        try:
            self._finish(end, deadline_s)
        except Exception as error:  # noqa: BLE001 - the job's end is known, and nothing here may change it
            self._complain(f"finishing the recording failed: {describe_error(error)}")
        if self._complaint is not None and not self._warned:
            warn(self._complaint)
        return self._recorded, self._complaint

    def _finish(self, end: Mapping[str, Any], deadline_s: float) -> None:
        if self._talk is None:
            return
        self._talk.post(event="ended", **end)
        self.send_signal(signal.SIGCONT)  # a stopped process must write the end, too
        self._wait(deadline_s)
        if self._talk.status is None:
            self._talk.kill()
            if not self._done:
                self._complain("the end of the recording was not awaited: the disk of the run folder does not answer")
        elif not self._done:
            how = describe_status(self._talk.status)
            self._complain(f"the recording stopped: the agent {how}")
            if self._recorded:
                self._close_broken(f"the agent {how}", end, deadline_s)

    def _wait(self, deadline_s: float) -> None:
        assert self._talk is not None
        while self._talk.status is None and (left_s := deadline_s - time.monotonic()) > 0:
            self._talk.await_news(left_s)
            self.look()
            if self._done:
                deadline_s = min(deadline_s, time.monotonic() + _ENDS_WITHIN_S)

    def _close_broken(self, reason: str, end: Mapping[str, Any], deadline_s: float) -> None:
        """Starts another process to write the end of the job and since when nothing was watched."""
        talk = ChildTalk(_MODULE, "close", plan=self._plan.as_json(), job_pid=self._job_pid, reason=reason, end=end)
        if not talk.wait(deadline_s):
            talk.kill()

    def _complain(self, text: str, *, at_once: bool = False) -> None:
        """Prints one line to the user: at once if there is no recording at all, else when the job has ended."""
        self._complaint = self._complaint or text
        if at_once and not self._warned:
            self._warned = True
            warn(text)


def warn(line: str) -> None:
    """Writes one line to stderr in one unbuffered write; never raises."""
    with contextlib.suppress(OSError):
        os.write(2, f"rn50-advisor: {' '.join(line.split())[:_LINE_MAX]}\n".encode(errors="replace"))
