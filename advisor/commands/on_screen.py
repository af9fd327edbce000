"""`run` on a terminal: the screen in front, the job behind it under a supervisor that outlives the screen."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from advisor.commands.conclusion import warn
from advisor.commands.saving import saver
from advisor.report.inert import command_line

if TYPE_CHECKING:
    from advisor.core.recording import Recording
    from advisor.core.report import Report
    from advisor.run.launcher import JobEnd
    from advisor.run.options import RunOptions
    from advisor.run.screen import Supervised
    from advisor.tui.app import AdvisorApp

STARTED_WITHIN_S = 10.0
# A job that is done this fast (`train.py --help`) wants its output on the terminal, not a screen that flashes by.
BRIEF_S = 1.0
LAST_LINES = 20
_LOOK_S = 0.2


def run_on_screen(
    argv: Sequence[str], *, folder: Path, settings: RunOptions, name: str, diagnosis: Callable[[Recording], Report]
) -> JobEnd | None:
    """The job's end, or None where the user has detached from it. Raises CommandNotFound or CommandNotExecutable."""
    from advisor.run.screen import Supervised

    columns, rows = shutil.get_terminal_size()
    job = Supervised.start(argv, run_folder=folder, options=settings, name=name, size=(rows, columns))
    end = _brief(job)
    if end is not None:
        _copy_output(job.output)
        return end
    answer = _show(job, folder, name or command_line(argv, 60), diagnosis)
    if answer == "detached":
        return None
    if answer is None and job.running():
        warn("the screen is gone, the job goes on; Ctrl-C interrupts it")
    end = _wait(job)
    if end.exit_code != 0:
        _copy_output(job.output, last_lines=LAST_LINES)
    return end


def _brief(job: Supervised) -> JobEnd | None:
    """Waits until the job has started, and a moment longer."""
    give_up = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < give_up:
        with contextlib.suppress(TimeoutError):
            return job.wait(0.05)
        if job.job_pid is not None:
            import advisor.tui.app  # noqa: F401 - takes half a second, which the wait is good for

            with contextlib.suppress(TimeoutError):
                return job.wait(BRIEF_S)
            break
    return None


def _show(job: Supervised, folder: Path, title: str, diagnosis: Callable[[Recording], Report]) -> str | None:
    """Why the screen was left; None where it failed."""
    from advisor.run.output import OutputTail
    from advisor.tui.app import AdvisorApp
    from advisor.tui.source import LiveSource

    output = OutputTail(job.output)
    try:
        source = LiveSource(folder, diagnosis=diagnosis)
        app = AdvisorApp(source, output=output, controls=job, title=title, save=saver(folder))
        with _terminating(job, app):
            return app.run()
    except Exception as error:  # noqa: BLE001 - a broken screen must not take the job with it
        warn(f"the screen failed: {type(error).__name__}: {error}")
        return None
    finally:
        output.close()


@contextlib.contextmanager
def _terminating(job: Supervised, app: AdvisorApp) -> Iterator[None]:
    """Who terminates us wants the job to end, as without us."""

    def terminate(number: int, frame: FrameType | None) -> None:
        job.terminate()
        app.exit("stopped")

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(job: Supervised) -> JobEnd:
    while True:
        try:
            return job.wait(_LOOK_S)
        except TimeoutError:
            continue
        except KeyboardInterrupt:
            job.interrupt()


def _copy_output(output: Path, last_lines: int = 0) -> None:
    """What the job has printed, bytes as they were; of a long job that failed only the end."""
    with contextlib.suppress(OSError):
        text = output.read_bytes()
        if last_lines:
            lines = text.splitlines(keepends=True)
            if len(lines) > last_lines:
                warn(f"the last {last_lines} of {len(lines):,} lines; all are in {output}")
            text = b"".join(lines[-last_lines:])
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
