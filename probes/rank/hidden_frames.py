"""Hides the recorder's frames from tracebacks, `warnings` and `logging`.

Code that walks the stack itself (`inspect.stack`, `sys._getframe`, a tracer) still sees them.
"""

from __future__ import annotations

import functools
import os
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
# When counting `stacklevel`, CPython skips files with "importlib" and "_bootstrap" in their names: `warnings` since 3.5, `logging` since
# 3.11.
_PASSED_OVER = " (between the job's, as is importlib._bootstrap)"


def passed_over(code: CodeType) -> CodeType:
    """Returns the code, and its nested code, with a file name that is skipped. The name still starts with our folder."""
    if code.co_filename.endswith(_PASSED_OVER):
        return code
    inner = tuple(passed_over(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=code.co_filename + _PASSED_OVER, co_consts=inner)


def wraps(original: Callable[..., Any]) -> Callable[[Any], Any]:
    """Like `functools.wraps`, but a wrapper shows the original's annotations and parameters or none, never its own."""
    import inspect  # torch has it imported; hiding the frames of a failed torch import needs none

    def decorate(wrapper: Any) -> Any:
        wrapper.__annotations__ = {}
        functools.wraps(original)(wrapper)
        try:
            if not hasattr(original, "__wrapped__"):  # `getfullargspec` ignores `__wrapped__`
                wrapper.__signature__ = inspect.signature(original)
        except (TypeError, ValueError):
            pass  # the original has no signature
        return wrapper

    return decorate


def hide_frame(error: BaseException) -> None:
    """Removes our frames from the traceback. Call it in the `except` clause before a bare `raise`.

    An exception of a signal handler that interrupted our code has our frames before the handler's.
    """
    traceback = error.__traceback__
    if traceback is not None:
        traceback = traceback.tb_next
        while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_FOLDER):
            traceback = traceback.tb_next
        error.__traceback__ = traceback
        if sys.version_info < (3, 11):
            try:
                _raise_again_with(error, traceback)
            except RecursionError:
                pass  # near the recursion limit: then the frame is shown


def _raise_again_with(error: BaseException, traceback: Any) -> None:
    """Sets the traceback in `sys.exc_info()`, which a bare `raise` uses up to Python 3.10."""
    import ctypes

    hold, replace = _of_python()
    held = [ctypes.py_object(each) for each in (type(error), error, traceback) if each is not None]
    for each in held:
        hold(each)  # PyErr_SetExcInfo steals the references
    replace(*held, *([None] if traceback is None else []))


@functools.lru_cache(None)
def _of_python() -> tuple[Any, Any]:
    """Private objects for C API functions: the job may have declared types on the shared ones of `pythonapi`."""
    import ctypes

    hold, replace = ctypes.pythonapi["Py_IncRef"], ctypes.pythonapi["PyErr_SetExcInfo"]
    hold.restype = replace.restype = None
    return hold, replace
