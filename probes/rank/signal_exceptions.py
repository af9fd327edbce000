"""Lets exceptions of the job's signal handlers through the except clauses of the recorder."""

from __future__ import annotations

import functools
import signal
import sys
import types
from typing import Any


def reraise_signal_exception() -> None:
    """Re-raises the current exception if a signal handler of the job raised it. Call it in an `except` clause.

    Handlers run between any two bytecodes, also ours: a time limit, a preemption, or torch's DataLoader, which reports a killed worker so.
    """
    error = sys.exc_info()[1]
    if error is not None and _raised_by_a_handler(error):
        raise error


def _raised_by_a_handler(error: BaseException) -> bool:
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    interrupted, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code in codes or (interrupted is not None and _is_given(frame, interrupted)):
            return True
        interrupted, traceback = frame, traceback.tb_next
    return False


def _is_given(frame: types.FrameType, interrupted: types.FrameType) -> bool:
    """True if a frame holds the interrupted frame, as signal handlers do.

    The handler may no longer be installed: handlers of time limits remove themselves before they raise.
    """
    values = list(frame.f_locals.values())
    return any(
        each is interrupted for each in values + [inner for each in values if type(each) is tuple for inner in each]
    )


def _code_of(handler: Any) -> types.CodeType | None:
    """The code of a function, method, partial or callable object; None if it is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, types.FunctionType):
        handler = next((vars(kind)["__call__"] for kind in type(handler).__mro__ if "__call__" in vars(kind)), None)
    return handler.__code__ if isinstance(handler, types.FunctionType) else None
