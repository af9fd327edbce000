"""The end of a job, and how the launcher exits in exactly the same way."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass
from typing import NoReturn

_PR_SET_DUMPABLE = 4
_END_UNKNOWN_CODE = 70  # EX_SOFTWARE of sysexits.h


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Exactly one of `exit_code` and `signal` is set, or neither if the end was not observed.

    `started` is false when a signal to us came before the job ran.
    """

    exit_code: int | None
    signal: int | None
    duration_s: float = 0.0
    started: bool = True
    recorded: bool = False  # the run folder holds a run
    complaint: str | None = None  # why the recording is missing or ends early


def describe_status(status: int) -> str:
    """Returns a process's wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def describe_error(error: BaseException) -> str:
    """Returns type and message of the first cause: the message that numpy adds to a failed import is a page long."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def exit_like(end: JobEnd) -> NoReturn:
    """End this process with the job's code or by the job's signal, without a second core dump."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if end.signal is None:
        # not sys.exit: a stream that cannot be flushed would turn the code into 120
        os._exit(_END_UNKNOWN_CODE if end.exit_code is None else end.exit_code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a core_pattern that is a pipe does not ask the limit
    with contextlib.suppress(OSError, ValueError):
        signal.signal(end.signal, signal.SIG_DFL)  # refused for SIGKILL and SIGSTOP, which do not need it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
    os.kill(os.getpid(), end.signal)
    os._exit(128 + end.signal)  # the first process of a container is immune to its own signals
