"""The screen's handle on a job that runs behind it: its output, its state, and how to stop it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError, CommandNotExecutable, CommandNotFound
from rn50_advisor.advisor.run.launch.job_end import JobEnd
from rn50_advisor.advisor.run.launch.orphans import reap_adopted
from rn50_advisor.advisor.run.launch.own_processes import start_module
from rn50_advisor.advisor.run.launch.supervise import OUTPUT_NAME
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store.schema import FILE_NAME
from rn50_advisor.probes.host.procfs import parse_stat

_REAPED_WITHIN_S = 5.0
_LOOK_S = 0.2  # period of looks at a job whose supervisor is gone
_STOPPED = frozenset((b"T", b"t"))
_ENDED = frozenset((b"Z", b"X", b"x"))
_ERRORS = {error.exit_code: error for error in (CommandNotFound, CommandNotExecutable)}


class Supervised:
    """Made by `start`. Every call returns at once, but `wait`."""

    def __init__(self, process: subprocess.Popen[bytes], reports: int, run_folder: Path) -> None:
        self._process = process
        self._reports = reports
        self._unread = b""
        self._end: JobEnd | None = None
        self._failure: AdvisorError | None = None
        self._terminal: str | None = None
        self.job_pid: int | None = None
        self._job_ticks: int | None = None  # start time; identifies the process together with its pid
        self.run_folder = run_folder
        self.output = run_folder / OUTPUT_NAME

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        run_folder: Path,
        options: RunOptions | None = None,
        name: str = "",
        size: tuple[int, int] = (24, 80),
    ) -> Supervised:
        """`size` is rows and columns of the pane the output is shown in. Raises OSError where no process can be started."""
        run_folder = run_folder.absolute()
        reading, writing = os.pipe()
        asked, asking = os.pipe()  # options may hold a password, and everybody sees command lines
        try:
            request = {
                "report": writing,
                "run_folder": str(run_folder),
                "options": dataclasses.asdict(options or RunOptions()),
                "name": name,
                "rows": size[0],
                "columns": size[1],
            }
            process = start_module(
                "rn50_advisor.advisor.run.launch.supervise", [str(asked), *argv], descriptors=(writing, asked)
            )
        except BaseException:
            os.close(reading)
            os.close(asking)
            raise
        finally:
            os.close(writing)
            os.close(asked)
        with contextlib.suppress(BrokenPipeError), os.fdopen(asking, "w") as pipe:  # it may be gone already
            json.dump(request, pipe)
        os.set_blocking(reading, False)
        return cls(process, reading, run_folder)

    @property
    def pid(self) -> int:
        """The supervisor's, which leads the session and the process group that the job is in."""
        return self._process.pid

    def running(self) -> bool:
        return self.poll() is None

    def poll(self) -> JobEnd | None:
        """The job's end, or None while it runs. Raises CommandNotFound or CommandNotExecutable if it could not be started."""
        if self._end is None:
            self._read_reports()
            status = self._process.poll()
            if (
                os.getpid() == 1
            ):  # of a container: what the job orphans is ours, and a full table of processes would be the job's end
                reap_adopted({self._process.pid})
            if status is not None:
                self._read_reports()
            if self._failure is not None:
                raise self._failure
            if status is not None and self._end is None and self._job_state() is None:
                self._end = self._unreported_end(status)
        return self._end

    def end_unknown(self) -> bool:
        """True if the supervisor is gone and did not report the job's end, which then stays unknown."""
        with contextlib.suppress(AdvisorError):
            end = self.poll()
            return self._process.poll() is not None and (end is None or (end.exit_code is None and end.signal is None))
        return False

    def notice(self) -> str:
        """A sentence on anything that hides the job's end or breaks its recording; empty if nothing does."""
        if self.end_unknown():
            if self._end is not None:
                return self._end.complaint or ""
            doing = "is stopped" if self._job_state() in _STOPPED else "still runs"
            return f"the job {doing}, unrecorded: its supervisor is gone, and its end will not be seen"
        if self._process.poll() is not None:
            return ""
        job, stopped = self._job_state(), _state_of(self.pid) in _STOPPED
        if job in _STOPPED:
            also = f" and its recording are stopped: kill -CONT {self.pid}" if stopped else " is stopped: kill -CONT"
            return f"the job{also} {self.job_pid} lets it go on"
        if not stopped:
            return ""
        if job is None and self.job_pid is not None:
            what = "the job has ended, but its supervisor is stopped and cannot tell how"
        elif job is None:
            what = "the job's supervisor is stopped"
        else:
            what = "the recording is paused while the job runs on: its supervisor is stopped"
        return f"{what}; kill -CONT {self.pid} lets it go on"

    def wait(self, timeout_s: float | None = None) -> JobEnd:
        """Raises TimeoutError. The supervisor's process is gone when this returns."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (end := self.poll()) is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError(f"the job still runs after {timeout_s} s")
            self._await_report(left_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAPED_WITHIN_S)
        return end

    def interrupt(self) -> None:
        """Sends SIGINT to the whole process group, like Ctrl-C on a terminal."""
        if self._group_exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGINT)

    def terminate(self) -> None:
        """SIGTERM to the job's main process, as `kill` does."""
        if self._process.poll() is None and _state_of(self.pid) not in _STOPPED:
            self._process.terminate()  # who passes it on
        elif self.job_pid is not None and self._job_state() is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.job_pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process of the job, but not to those that keep the record."""
        for pid in self._session() - {self.pid}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def resize(self, rows: int, columns: int) -> None:
        """The pane has another size; progress bars ask for it."""
        self._read_reports()
        if self._terminal is None or self._end is not None:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self._terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            finally:
                os.close(descriptor)

    def _unreported_end(self, status: int) -> JobEnd:
        """The supervisor is gone and has not said how the job ended, and the job is gone too."""
        if self.job_pid is None:
            return JobEnd(None if status < 0 else status, -status if status < 0 else None, started=False)
        complaint = (
            "how the job ended is not known: its supervisor was gone before, and what came after is not recorded"
        )
        return JobEnd(None, None, recorded=(self.run_folder / FILE_NAME).exists(), complaint=complaint)

    def _job_state(self) -> bytes | None:
        """The letter that the kernel gives of the job's main process; None where it has ended, or was never heard of."""
        if self.job_pid is None or self._job_ticks is None:
            return None
        return _state_of(self.job_pid, self._job_ticks)

    def _group_exists(self) -> bool:
        """An ended process's number may be somebody else's by now."""
        return self._process.poll() is None or bool(self._session())

    def _session(self) -> set[int]:
        """Living processes of the supervisor's session, and their descendants that left it."""
        parents, sessions = {}, {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - names only
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError):
                    stat = Path(f"/proc/{name}/stat").read_bytes()
                    fields = stat[stat.rindex(b")") + 2 :].split()
                    if fields[0] not in (b"Z", b"X"):
                        parents[int(name)], sessions[int(name)] = int(fields[1]), int(fields[3])
        found = {pid for pid, session in sessions.items() if session == self.pid}
        # not the supervisor's own children in other sessions: that is the relay
        while more := {p for p, parent in parents.items() if parent in found - {self.pid} and p not in found}:
            found |= more
        return found

    def _await_report(self, timeout_s: float | None) -> None:
        wait_s = 0.5 if timeout_s is None else min(0.5, timeout_s)
        if self._reports >= 0:
            waiting = select.poll()  # not `select`: whoever started us may have left more than 1,024 files open
            waiting.register(self._reports, select.POLLIN)
            waiting.poll(1000 * wait_s)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                time.sleep(min(_LOOK_S, wait_s))  # the job is not our child: nothing wakes us at its end

    def _read_reports(self) -> None:
        while self._reports >= 0:
            try:
                data = os.read(self._reports, 65536)
            except BlockingIOError:
                break
            if not data:
                os.close(self._reports)
                self._reports = -1
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, report: dict[str, Any]) -> None:
        event = report.pop("event")
        if event == "terminal":
            self._terminal = report["path"]
        elif event == "job":
            self.job_pid = report["pid"]
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._job_ticks = parse_stat(Path(f"/proc/{self.job_pid}/stat").read_bytes()).start_ticks
        elif event == "failed":
            error = _ERRORS.get(report["exit_code"], AdvisorError)
            self._failure = error(report["message"], report["hint"])
        elif event == "ended":
            self._end = JobEnd(**report)


def _state_of(pid: int, start_ticks: int | None = None) -> bytes | None:
    """The process state; None if it has ended, or if its pid belongs to another process by now."""
    try:
        stat = parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return None
    return None if stat.state in _ENDED or start_ticks not in (None, stat.start_ticks) else stat.state
