"""What the walls around the recorder must let through: an exception that is the job's own, though it came up amid our code."""

from __future__ import annotations

import functools
import signal
import sys
import types
from typing import Any


def let_pass() -> None:
    """Called where an exception was caught: raises it again where a signal handler of the job's has raised it.

    Handlers run between any two bytecodes, ours too: a time limit, a preemption, or torch's DataLoader, which tells so that a worker was
    killed.
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
    """A handler gets the frame that it interrupts. It may be installed no longer: those of a time limit take themselves out, then raise."""
    values = list(frame.f_locals.values())
    return any(
        each is interrupted for each in values + [inner for each in values if type(each) is tuple for inner in each]
    )


def _code_of(handler: Any) -> types.CodeType | None:
    """Of a function, a method, a partial, or an object that can be called; None of what is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, types.FunctionType):
        handler = next((vars(kind)["__call__"] for kind in type(handler).__mro__ if "__call__" in vars(kind)), None)
    return handler.__code__ if isinstance(handler, types.FunctionType) else None
