"""Runs the job behind a screen: a separate process that does the launcher's work, with the job's output on a pseudo-terminal of ours.

The screen may be closed, detached or killed; so may this process. The job and the relay that keeps its output go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.launch import output_relay
from rn50_advisor.advisor.run.launch.launcher import JobEnd, exit_like, leave_nothing, run_job
from rn50_advisor.advisor.run.launch.own_processes import start_file
from rn50_advisor.advisor.run.run_options import RunOptions

OUTPUT_NAME = "output.log"  # as rn50_advisor.advisor.store.schema says; importing that here would delay the job
_DRAINED_WITHIN_S = 2.0
_RELAYS_MAX = 3


class Relay:
    """Keeps a relay running for as long as the terminal is open: it and we would have to be killed for the job to notice."""

    def __init__(self, master: int, log: Path) -> None:
        self._master = master
        self._log = log
        self._started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._drained = threading.Event()
        self._start()

    def look(self) -> tuple[int, ...]:
        """Returns the relay's pid, and replaces a killed relay. A relay exits with 0 only once no process has the terminal open."""
        if self._process is not None and (ended := self._process.poll()) is not None:
            self._process = None
            if ended == 0:
                self._drained.set()
            else:
                self._replace()
        return () if self._process is None else (self._process.pid,)

    def drained(self, within_s: float) -> bool:
        """True if all output is in the file. Processes that the job left behind may still print."""
        deadline_s = time.monotonic() + within_s
        while not self._drained.is_set() and (left_s := deadline_s - time.monotonic()) > 0:
            if self.look():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    assert self._process is not None
                    self._process.wait(left_s)
            else:
                self._drained.wait(left_s)
        return self._drained.is_set()

    def _start(self) -> None:
        arguments = [str(self._master), str(self._log)]
        self._process = start_file(Path(output_relay.__file__), arguments, descriptors=[self._master])
        self._started += 1

    def _replace(self) -> None:
        """Starts the relay process again; if that fails, a thread of this process copies instead."""
        if self._started <= _RELAYS_MAX:
            with contextlib.suppress(OSError):
                self._start()
                return
        threading.Thread(target=self._copy, name="rn50-relay", daemon=True).start()

    def _copy(self) -> None:
        output_relay.copy_until_closed(self._master, output_relay.LogWriter(str(self._log)))
        self._drained.set()


class StatusLines:
    """Writes JSON lines to our parent, which may no longer be listening."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def write(self, **what: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, json.dumps(what).encode() + b"\n")


def open_terminal(rows: int, columns: int) -> tuple[int, int]:
    """Returns (master, slave). Output passes unchanged (no added carriage returns). The slave is no process's controlling terminal."""
    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    set_size(slave, rows, columns)
    return master, slave


def _name_of(slave: int) -> str | None:
    """Returns the terminal's path; None in a chroot without /dev/pts, where its size is then not updated."""
    try:
        return os.ttyname(slave)
    except OSError:
        return None


def set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def main() -> None:
    """Arguments: the descriptor of a pipe with one JSON object, then the job's command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the job runs, an interrupt simply ends us
    with os.fdopen(int(sys.argv[1])) as pipe:
        request, argv = json.load(pipe), sys.argv[2:]
    report = StatusLines(request["report"])
    folder = Path(request["run_folder"])
    null = os.open(os.devnull, os.O_RDWR)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        master, slave = open_terminal(request["rows"], request["columns"])
        keeper = Relay(master, folder / OUTPUT_NAME)
    except OSError as error:
        message = f"no terminal for the job: {error.strerror or error}"
        report.write(event="failed", message=message, hint="--no-tui runs it on this one", exit_code=1)
        return
    report.write(event="terminal", path=_name_of(slave))
    os.dup2(null, 0)
    os.dup2(slave, 1)
    os.dup2(slave, 2)
    os.close(slave)

    failure = None
    try:
        end = run_job(
            argv,
            run_folder=folder,
            options=RunOptions(**request["options"]),
            name=request["name"],
            on_start=lambda pid: report.write(event="job", pid=pid),
            own_children=keeper.look,
            output_kept=True,
        )
    except AdvisorError as error:
        failure = error
        end = JobEnd(error.exit_code, None, started=False)
    os.dup2(null, 1)
    os.dup2(null, 2)
    keeper.drained(_DRAINED_WITHIN_S)
    if failure is not None:
        with contextlib.suppress(OSError):
            (folder / OUTPUT_NAME).unlink()  # warnings of ours, about a job that has not run
        leave_nothing(folder)
        report.write(event="failed", message=failure.message, hint=failure.hint, exit_code=failure.exit_code)
    report.write(
        event="ended",
        exit_code=end.exit_code,
        signal=end.signal,
        duration_s=end.duration_s,
        started=end.started,
        recorded=end.recorded,
        complaint=end.complaint,
    )
    exit_like(end)


if __name__ == "__main__":
    main()
