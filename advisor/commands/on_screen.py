"""`run` on a terminal: shows the screen while the job runs behind it, under a supervisor that outlives the screen."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rn50_advisor.advisor.commands.conclusion import warn
from rn50_advisor.advisor.commands.saved_reports import saver
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.inert_text import command_line

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Recording
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.advisor.run.launch.launcher import JobEnd
    from rn50_advisor.advisor.run.launch.screen_job import Supervised
    from rn50_advisor.advisor.run.run_options import RunOptions

STARTED_WITHIN_S = 10.0
# A job that ends this fast (`train.py --help`) gets its output on the terminal instead of a screen that flashes by.
BRIEF_S = 1.0
LAST_LINES = 20
_LOOK_S = 0.2
# Python's last line if `input()` or `breakpoint()` reads at end of file.
_ASKED_NOBODY = re.compile(rb"\b(EOFError: EOF when reading a line|bdb\.BdbQuit)\b")


def run_on_screen(
    argv: Sequence[str], *, folder: Path, settings: RunOptions, name: str, diagnosis: Callable[[Recording], Report]
) -> JobEnd | None:
    """Returns the job's end; None if the user detached from the job.

    Raises CommandNotFound or CommandNotExecutable; another AdvisorError if the job did not start but can start without a screen.
    """
    from rn50_advisor.advisor.run.launch.screen_job import Supervised

    columns, rows = shutil.get_terminal_size()
    with _Signals() as signals:
        try:
            job = Supervised.start(argv, run_folder=folder, options=settings, name=name, size=(rows, columns))
        except OSError as error:
            raise AdvisorError(f"its supervisor could not be started: {error.strerror or error}") from error
        signals.reach(job)
        end = _brief(job, signals)
        if end is not None:
            _copy_output(job.output)
            return end
        answer = _show(job, folder, name or command_line(argv, 60), diagnosis, signals)
        if answer == "detached":
            return None
        if answer is None and job.running():
            warn("the screen is gone, the job goes on; Ctrl-C interrupts it")
        end = _wait(job)
    if end.exit_code != 0:
        _copy_output(job.output, last_lines=LAST_LINES)
    return end


class _Signals:
    """Passes Ctrl-C and `kill` on to the job, which would not receive them in its own session."""

    def __init__(self) -> None:
        self._job: Supervised | None = None
        self._early: list[int] = []
        self.received = False
        self.leave: Callable[[], object] = lambda: None  # also called on a termination

    def __enter__(self) -> _Signals:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reach(self, job: Supervised) -> None:
        self._job = job
        for number in self._early:
            self._arrived(number, None)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        if self._job is None:
            self._early.append(number)
        elif number == signal.SIGINT:
            self._job.interrupt()
        else:
            self._job.terminate()
            self.leave()


def _brief(job: Supervised, signals: _Signals) -> JobEnd | None:
    """Waits until the job has started and BRIEF_S longer. Returns its end if it ends meanwhile; after a signal, waits for the end."""
    until = time.monotonic() + STARTED_WITHIN_S
    started = False
    while time.monotonic() < until and not signals.received:
        with contextlib.suppress(TimeoutError):
            return job.wait(0.05)
        if job.job_pid is not None and not started:
            with contextlib.suppress(Exception):  # _show reports the failure
                import rn50_advisor.advisor.tui.app  # noqa: F401 - takes half a second, which the wait is good for

            started, until = True, time.monotonic() + BRIEF_S
    return _wait(job) if signals.received else None


def _show(
    job: Supervised, folder: Path, title: str, diagnosis: Callable[[Recording], Report], signals: _Signals
) -> str | None:
    """Shows the screen and returns the reason why it was left; None if it failed."""
    from rn50_advisor.advisor.run.launch.output_lines import OutputTail

    output = OutputTail(job.output)
    try:
        from rn50_advisor.advisor.tui.app import AdvisorApp
        from rn50_advisor.advisor.tui.report_source import LiveSource

        source = LiveSource(folder, diagnosis=diagnosis)
        app = AdvisorApp(source, output=output, controls=job, title=title, save=saver(folder), run=folder)
        signals.leave = lambda: app.exit("stopped")
        return "stopped" if signals.received else app.run()
    except Exception as error:  # noqa: BLE001 - a broken screen must not take the job with it
        warn(f"the screen failed: {type(error).__name__}: {error}")
        return None
    finally:
        signals.leave = lambda: None
        output.close()


def _wait(job: Supervised) -> JobEnd:
    last_notice = ""
    while True:
        with contextlib.suppress(TimeoutError):
            return job.wait(_LOOK_S)
        notice = job.notice()
        if notice and notice != last_notice:
            warn(notice)
        last_notice = notice


def _copy_output(output: Path, last_lines: int = 0) -> None:
    """Prints the job's output unchanged; for a long job that failed only its last lines."""
    with contextlib.suppress(OSError):
        text = output.read_bytes()
        asked = _ASKED_NOBODY.search(text)
        if last_lines:
            lines = text.splitlines(keepends=True)
            if len(lines) > last_lines:
                warn(f"the last {last_lines} of {len(lines):,} lines; all are in {output}")
            text = b"".join(lines[-last_lines:])
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        if asked:
            warn("behind the screen the job's input is empty; --no-tui gives it this terminal")
