"""What `run` says once the job has ended: the summary and the reports. Nothing in here may change how the run ends."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from advisor.core.errors import AdvisorError
from advisor.report.inert import one_line

if TYPE_CHECKING:
    from advisor.core.recording import Recording
    from advisor.core.report import Report

LONGEST_S = 60.0  # a batch system waits for our exit; `rn50-advisor report` can take its time
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Cut(BaseException):
    """Somebody wants us gone, or we took too long."""


def conclude(run: Path, diagnosis: Callable[[Recording], Report], report_files: Sequence[str]) -> None:
    """Writes the report files and prints the summary to stderr; whatever fails becomes one line there."""
    try:
        with _interruptible():
            from advisor.merge.reading import read_job

            _conclude(run, diagnosis(read_job(run)), report_files)
    except Cut as cut:
        warn(f"no summary: {cut}; rn50-advisor report {run} makes one")
    except AdvisorError as error:
        warn(f"no summary: {error.message}")
    except Exception as error:  # noqa: BLE001 - the job has ended well or badly, and that is what our exit must tell
        warn(f"no summary: {type(error).__name__}: {error}; rn50-advisor report {run} makes one")


def warn(message: str) -> None:
    """One line on stderr, if there is one and it still goes anywhere."""
    if sys.stderr is None:  # print would take stdout instead, which is the job's
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"rn50-advisor: {one_line(message, 500)}", file=sys.stderr, flush=True)


def _conclude(run: Path, report: Report, report_files: Sequence[str]) -> None:
    from advisor.report import lines, text, write

    written = []
    for file in report_files:
        try:
            write(report, file)
            written.append(file)
        except OSError as error:
            warn(f"the report {file} could not be written: {error.strerror or error}")
    if sys.stderr is None:
        return
    where = ", ".join(written) or f"rn50-advisor report {run}"
    with contextlib.suppress(OSError, ValueError):
        lines.paint(text.summary_lines(report, where), sys.stderr)
        sys.stderr.flush()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Turns signals that would end us, and a deadline, into `Cut`; what was ignored before stays ignored."""

    def cut(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each in (*_ENDING, signal.SIGALRM):
            signal.signal(each, signal.SIG_IGN)  # the first one is enough; exit_like sets what it needs
        told = f"it took more than {LONGEST_S:.0f} s" if number == signal.SIGALRM else signal.Signals(number).name
        raise Cut(told)

    before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGALRM)}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, cut)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in before:
            signal.signal(number, signal.SIG_IGN)
