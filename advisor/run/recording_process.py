"""The process that records beside the job: the launcher talks to it through one pipe, and it answers through another.

It lives in a session of its own with the signals blocked that the launcher blocks: what ends it is the end of its launcher, or SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.launch.job_end import describe_error
from rn50_advisor.advisor.run.recording_plan import RecordingPlan

# Four for each of hundreds of ranks and workers, where 1024 is usual.
_OPEN_FILES = 65_536
_PR_SET_PDEATHSIG = 1
_REQUESTS_KEPT = 100  # until the recording takes them, a fraction of a second later


def main() -> None:
    """Arguments: the descriptors of the two pipes, and what is to be done."""
    orders, answers, task = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for descriptor in (orders, answers):
        os.set_inheritable(descriptor, False)
    _go_on_without_launcher()
    with os.fdopen(orders) as lines:
        first = lines.readline()
        if first.endswith("\n"):
            request = json.loads(first)
            plan = RecordingPlan.from_json(request.pop("plan"))
            if task == "record":
                JobRecorder(plan, request["job_pid"], answers).make(lines)
            else:
                from rn50_advisor.advisor.run.run_meta import close_broken  # noqa: PLC0415 - it brings SQLite

                close_broken(plan, **request)
        os._exit(0)  # threads that a disk or a driver holds are not waited for


class JobRecorder:
    """Records the job until it ends or the launcher does."""

    def __init__(self, plan: RecordingPlan, job_pid: int, answers: int) -> None:
        self._plan = plan
        self._job_pid = job_pid
        self._answers = answers
        self._over = threading.Event()
        self._requests: deque[tuple[int, int]] = deque(maxlen=_REQUESTS_KEPT)
        self._end: Mapping[str, Any] | None = None

    def make(self, lines: Iterable[str]) -> None:
        _allow_open_files()
        try:
            threading.Thread(target=self._listen, args=(lines,), name="rn50-orders", daemon=True).start()
            self._record()
        except Exception as error:  # noqa: BLE001 - the wall: the launcher prints it when the job has ended
            self._complain(f"the recording stopped: {describe_error(error)}")
        self._answer(event="done")

    def _listen(self, lines: Iterable[str]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                message = json.loads(line)
                if message["event"] == "asked_to_end":
                    self._requests.append((message["t_ns"], message["signal"]))
                elif message["event"] == "ended":
                    self._end = message
                    break
        self._over.set()  # without an end: the launcher has been killed

    def _record(self) -> None:
        # heavy imports, while the job is already starting
        from rn50_advisor.advisor.run.agent import Agent  # noqa: PLC0415
        from rn50_advisor.advisor.store.recording_failure import RecordingStopped  # noqa: PLC0415

        try:
            agent = Agent(self._plan, self._job_pid, self._requests)
        except (RecordingStopped, AdvisorError) as error:
            self._complain(f"the job runs unrecorded: {error.message}", at_once=True)
            return
        self._answer(event="recorded")
        try:
            agent.run(self._over)
        except Exception as error:
            agent.note_crash(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._over.wait()
            stopped = agent.close(self._end) if self._end is not None else agent.leave()
        if stopped:
            self._complain(stopped)

    def _complain(self, text: str, *, at_once: bool = False) -> None:
        self._answer(event="complaint", text=text, at_once=at_once)

    def _answer(self, **what: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._answers, json.dumps(what).encode() + b"\n")


def _go_on_without_launcher() -> None:
    """The launcher stops us when it is stopped itself: one that is killed then shall not leave us so for ever."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if 0 < soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
