"""The recording beside the job: a thread that is started with the job, told of its end, and never in its way."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from advisor.core.errors import AdvisorError
from advisor.run.options import RunOptions

# Of ours, once the job has been started with its own limit: four for each of hundreds of ranks and workers, where 1024 is usual.
_OPEN_FILES = 65_536
_REQUESTS_KEPT = 100  # until the recording takes them, a fraction of a second later


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be recorded, and where. `run_folder` None: nothing is; `ring_folder` None: no view from inside."""

    argv: tuple[str, ...]
    run_folder: Path | None
    name: str
    options: RunOptions
    ring_folder: Path | None
    began_ns: int
    began_unix_s: float
    began_cpu_s: float  # of this process; what it takes from then on is the cost of watching
    printed_before: tuple[int, int] = (0, 0)  # bytes that stood in our own stdout and stderr, where they are files


class Companion:
    """`start` and `finish` belong to the launcher and raise nothing."""

    def __init__(self, plan: Plan, job_pid: int) -> None:
        self._plan = plan
        self._job_pid = job_pid
        self._job_ended = threading.Event()
        self._requests: deque[tuple[int, int]] = deque(maxlen=_REQUESTS_KEPT)
        self._end: tuple[int | None, int | None, int] = (None, None, 0)
        self._recorded = False
        self._complaint: str | None = None
        self._thread = threading.Thread(target=self._record, name="rn50-agent", daemon=True)

    def start(self) -> None:
        if self._plan.run_folder is None:
            return
        _allow_open_files()
        try:
            self._thread.start()
        except RuntimeError as error:
            self._complain(f"the job runs unrecorded: {error}", at_once=True)

    def asked_to_end(self, signal: int) -> None:
        """Somebody asks the job to end, now: what ends soon after did not fail by itself."""
        self._requests.append((time.perf_counter_ns(), signal))

    def finish(self, exit_code: int | None, signal: int | None, ended_ns: int) -> tuple[bool, str | None]:
        """Whether there is a recording, and why it is missing or incomplete. Waits for its end, but not for ever."""
        self._end = (exit_code, signal, ended_ns)
        self._job_ended.set()
        if self._thread.ident is not None:
            self._thread.join(self._plan.options.close_within_s)
            if self._thread.is_alive():
                self._complain(
                    "the end of the recording was not waited for: the disk of the run folder does not answer"
                )
        return self._recorded, self._complaint

    def _record(self) -> None:
        try:
            # heavy imports, while the job is already starting
            from advisor.run.agent import Agent  # noqa: PLC0415
            from advisor.store.failure import RecordingStopped  # noqa: PLC0415

            try:
                agent = Agent(self._plan, self._job_pid, self._requests)
            except (RecordingStopped, AdvisorError) as error:
                self._complain(f"the job runs unrecorded: {error.message}", at_once=True)
                return
            self._recorded = True
            try:
                agent.run(self._job_ended)
            except Exception as error:
                agent.note_crash(f"{type(error).__name__}: {error}")
                raise
            finally:
                self._job_ended.wait()
                stopped = agent.close(*self._end)
            if stopped:
                self._complain(stopped)
        except Exception as error:  # noqa: BLE001 - the wall: whatever breaks in here, the job does not notice
            self._complain(f"the recording broke off: {type(error).__name__}: {error}")

    def _complain(self, text: str, *, at_once: bool = False) -> None:
        """One line to the user; at once where there will be no recording at all, else when the job has ended."""
        self._complaint = text
        if at_once or self._job_ended.is_set():
            warn(text)
        else:
            self._job_ended.wait()
            warn(text)


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if 0 < soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def warn(line: str) -> None:
    """One line on stderr, whole, past every buffer; never an error."""
    with contextlib.suppress(OSError):
        os.write(2, f"rn50-advisor: {line}\n".encode(errors="replace"))


def note_launch_error(plan: Plan, error: AdvisorError) -> None:
    """A run of a job that could not be started says so. What cannot be written is not: the error itself is on its way to the user."""
    if plan.run_folder is None:
        return
    with contextlib.suppress(Exception):
        from advisor.run.meta import first_meta  # noqa: PLC0415
        from advisor.store.writer import RunWriter  # noqa: PLC0415

        meta = first_meta(plan)
        writer = RunWriter.create(plan.run_folder, meta=meta)
        writer.put_meta(launch_error=error.message, ended_ns=time.perf_counter_ns(), exit_code=error.exit_code)
        writer.close()
