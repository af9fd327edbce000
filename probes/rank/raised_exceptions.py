"""The exception that ends a process, and its phase. Its traceback shows the phase if later marks have changed it."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.rank_documents import ExceptionFacts

_DEVICE = re.compile(r"\bGPU (\d+)\b|Allocation on device (\d+)")
_SECRET_NAME = re.compile(r"token|secret|passw|credential|(api|access|private|auth)_?key", re.IGNORECASE)
_MESSAGE_HALF = 1000  # characters
_SECRET_CHARS_MIN = 8  # shorter values occur by chance in too many words
# Phases in which a forward pass may run unmarked: on the loop's own tensors, or for a second loss.
_UNMARKED = ("", "start", "clip", "gap", "optimizer")


def uncaught() -> BaseException | None:
    """The exception that ends the process; called at exit. In a multiprocessing child it is still being handled.

    mp.spawn catches it, sends its text to the parent and exits; other handlers may exit without an error.
    """
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    if not isinstance(error, SystemExit):
        return error
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    spawned = innermost is not None and innermost.tb_frame.f_code.co_name == "_wrap"
    return error.__context__ if spawned and error.code else None


def exception_facts(torch: Any, error: BaseException, marked: str) -> ExceptionFacts:
    """Describes an exception that ends the process. `marked`: the phase of the last mark."""
    return {
        "type": type(error).__name__,
        "message": shortened(without_secrets(str(error), os.environ)),
        "phase": raised_in(torch, error, marked),
        **raised_at(error),
    }


def raised_in(torch: Any, error: BaseException, marked: str) -> str:
    """The phase in which the error was raised. `marked`: the phase of the last mark.

    During unwinding, the wrappers of a backward pass and of a scaler's step have already marked its end.
    """
    found, traceback = "", error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "backward" and file == torch.autograd.__file__:
            found = "backward"
        elif name == "step" and isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
            found = "optimizer"
        elif name == "_call_impl" and file == torch.nn.modules.module.__file__ and found != "backward":
            found = "forward"  # also inside an optimizer step: the forward of its closure
    return marked if found == "forward" and marked not in _UNMARKED else found or marked


def raised_at(error: BaseException) -> ExceptionFacts:
    """The innermost line of the user's code in the exception's traceback; empty if there is none."""
    from .facts.process_facts import is_users  # needs Linux, and reports made on other systems import this module

    found: ExceptionFacts = {}
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users(code.co_filename):
            found = {"file": code.co_filename, "line": traceback.tb_lineno, "function": code.co_name}
        traceback = traceback.tb_next
    return found


def shortened(message: str) -> str:
    """The message, or the start and end of a long one: a worker's traceback names the error at its end."""
    if len(message) <= 2 * _MESSAGE_HALF:
        return message
    return message[:_MESSAGE_HALF] + "\n...\n" + message[-_MESSAGE_HALF:]


def without_secrets(text: str, variables: Mapping[str, str]) -> str:
    """Masks the values of secret variables. The agent knows those set at the job's start; the job may have set others."""
    texts = [
        pair for pair in variables.items() if all(isinstance(each, str) for each in pair)
    ]  # a job may replace os.environ
    values = {value for name, value in texts if len(value) >= _SECRET_CHARS_MIN and _SECRET_NAME.search(name)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def device_named(text: str) -> str:
    """The device in torch's out-of-memory message, in tensors' notation; empty if the message names none."""
    named = _DEVICE.search(text)
    return "cuda:%s" % (named[1] or named[2]) if named else ""
