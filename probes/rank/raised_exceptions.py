"""The exception that ends a process, and its phase. Its traceback shows the phase if later marks have changed it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEVICE = re.compile(r"\bGPU (\d+)\b|Allocation on device (\d+)")
_SECRET_NAME = re.compile(r"token|secret|passw|credential|(api|access|private|auth)_?key", re.IGNORECASE)
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
