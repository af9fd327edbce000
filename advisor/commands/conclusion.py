"""Writes the summary and the reports at the end of `run`. Nothing here may change how the run ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.inert_text import one_line
from rn50_advisor.advisor.run.launch.job_end import describe_error, describe_status

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Recording
    from rn50_advisor.advisor.model.report import Report

LONGEST_S = 60.0  # a batch system waits for our exit; `rn50-advisor report` has no limit
_CUT_WITHIN_S = 5.0  # further time until a child that ignores signals is killed
_LOOK_MS = 100
_STDERR = 2
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Cut(BaseException):
    """A signal asked us to end, or the deadline passed."""


def conclude(run: Path, diagnosis: Callable[[Recording], Report], report_files: Sequence[str]) -> None:
    """Writes the report files and prints the summary to stderr; a failure becomes one line there.

    Runs in a child, since a crash here would lose the job's exit code. Signals that ask us to end only cut this short.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        status = _in_child(lambda: _conclude_within(run, diagnosis, report_files, before))
        if status:
            warn(f"no summary: it {describe_status(status)}; rn50-advisor report {run} makes one")
    except OSError as error:
        warn(f"no summary: {error.strerror or error}; rn50-advisor report {run} makes one")
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a child and returns its wait status. Raises OSError if the child cannot be created."""
    ends, held = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a screen leaves threads; a lock that one holds ends at the deadline
        child = os.fork()
    if child == 0:
        try:
            os.close(ends)
            work()
        finally:
            os._exit(0)
    os.close(held)
    try:
        return _reaped(child, ends)
    finally:
        os.close(ends)


def _reaped(child: int, ends: int) -> int:
    """Returns the child's wait status; passes on signals that only we receive. `ends` becomes readable when the child ends."""
    deadline_s = time.monotonic() + LONGEST_S + _CUT_WITHIN_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        while (info := signal.sigtimedwait(_ENDING, 0)) is not None:
            os.kill(child, info.si_signo)
        if time.monotonic() > deadline_s:
            os.kill(child, signal.SIGKILL)
        poller = select.poll()
        poller.register(ends, select.POLLIN)
        poller.poll(_LOOK_MS)
    return ended[1]


def _conclude_within(
    run: Path, diagnosis: Callable[[Recording], Report], report_files: Sequence[str], mask: set[int | signal.Signals]
) -> None:
    try:
        with _interruptible(mask):
            _silence_libraries()
            from rn50_advisor.advisor.merge.job_reading import read_job

            recording = read_job(run)
            report = diagnosis(recording)
            _conclude(run, report, report_files, recording)
            _keep_verdict(run, report, recording)
    except Cut as cut:
        warn(f"no summary: {cut}; rn50-advisor report {run} makes one")
    except AdvisorError as error:
        warn(f"no summary: {error.message}")
    except Exception as error:  # noqa: BLE001 - the job has ended well or badly, and our exit code must say which
        warn(f"no summary: {describe_error(error)}; rn50-advisor report {run} makes one")


def _silence_libraries() -> None:
    """Hides messages of C libraries that run out of memory; the user gets our own line instead."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream = sys.stderr
        if stream.fileno() == _STDERR:
            sys.stderr = os.fdopen(os.dup(_STDERR), "w", encoding=stream.encoding, errors=stream.errors)
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)


def warn(message: str) -> None:
    """Prints one line on stderr, if stderr exists and is still open."""
    if sys.stderr is None:  # print would take stdout instead, which is the job's
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"rn50-advisor: {one_line(message, 500)}", file=sys.stderr, flush=True)


def _keep_verdict(run: Path, report: Report, recording: Recording) -> None:
    """Keeps the verdict for lists of runs. Where it cannot be written, `rn50-advisor runs --judge` finds it again."""
    from rn50_advisor.advisor.store.run_summary import summary_of, write_summary

    with contextlib.suppress(OSError):
        write_summary(run, summary_of(report, recording))


def _conclude(run: Path, report: Report, report_files: Sequence[str], recording: Recording) -> None:
    from rn50_advisor.advisor.report import is_trace_name, styled_lines, text, write

    written = []
    for file in report_files:
        try:
            if is_trace_name(file):
                from rn50_advisor.advisor.report.perfetto import save_trace

                save_trace(report, recording, Path(file), run)
            else:
                write(report, file)
            written.append(file)
        except OSError as error:
            warn(f"the report {file} could not be written: {error.strerror or error}")
        except AdvisorError as error:
            warn(f"the report {file} could not be written: {error.message}")
    if sys.stderr is None:
        return
    where = ", ".join(written) or f"rn50-advisor report {run}"
    with contextlib.suppress(OSError, ValueError):
        styled_lines.paint(text.summary_lines(report, where, str(run)), sys.stderr)
        sys.stderr.flush()


@contextlib.contextmanager
def _interruptible(mask: set[int | signal.Signals]) -> Iterator[None]:
    """Turns signals that would end us, and the deadline, into `Cut`. Signals that were ignored before stay ignored."""

    def cut(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each in (*_ENDING, signal.SIGALRM):
            signal.signal(each, signal.SIG_IGN)  # one signal is enough; exit_like sets the handlers it needs
        reason = f"it took more than {LONGEST_S:.0f} s" if number == signal.SIGALRM else signal.Signals(number).name
        raise Cut(reason)

    before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGALRM)}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, cut)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in before:
            signal.signal(number, signal.SIG_IGN)
