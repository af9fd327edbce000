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
    traceback = error.__traceback__
    while traceback is not None and codes:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: Any) -> types.CodeType | None:
    """Of a function, a method, a partial, or an object that can be called; None of what is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, types.FunctionType):
        handler = next((vars(kind)["__call__"] for kind in type(handler).__mro__ if "__call__" in vars(kind)), None)
    return handler.__code__ if isinstance(handler, types.FunctionType) else None
