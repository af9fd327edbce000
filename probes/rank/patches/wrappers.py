"""Wrappers around functions of torch: they return or raise exactly what the original does, and swallow errors of the recorder.

While dynamo traces, each wrapper acts as the original: `is_compiling()` is a constant for dynamo, so graphs do not change.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder


def quietly(recorder: Recorder, call: Callable[..., Any], *args: Any) -> Any:
    """Calls `call` and swallows and counts errors of the recorder, so that none reaches the job. Lets signal handlers' exceptions pass."""
    try:
        return call(*args)
    except RecursionError:
        return None  # the job is near its recursion limit: make no further call, not even to count this error
    except Exception:
        count_error(recorder)
        return None


def count_error(recorder: Recorder) -> None:
    """Counts the error that is being handled; call it in an `except` clause. Hot wrappers inline `quietly` to save a call per mark."""
    if sys.exc_info()[0] is RecursionError:
        return  # near the recursion limit, as in `quietly`
    reraise_signal_exception()
    try:
        recorder.failed()
    except Exception:
        recorder.active = False


def asks_dynamo(recorder: Recorder) -> Callable[[], bool]:
    """A predicate that is True while dynamo traces its caller, else False."""
    compiler = getattr(getattr(recorder, "torch", None), "compiler", None)
    return getattr(compiler, "is_dynamo_compiling", bool)


def around(
    recorder: Recorder,
    original: Callable[..., Any],
    begin: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    end: Callable[[Any], None],
    *,
    raised_too: bool = True,
) -> Any:
    """Wraps a rarely called function. `begin` gets the arguments; `end` gets its result, unless that is None.

    Without `raised_too`, `end` runs only if the original returned.
    """
    is_compiling = asks_dynamo(recorder)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # an object in a cycle may be finalised after the interpreter has cleared this module
        if is_compiling() or quietly is None:
            return original(*args, **kwargs)
        token = None
        try:
            token = quietly(recorder, begin, args, kwargs)
            result = original(*args, **kwargs)
            if token is not None:
                ended, token = token, None
                quietly(recorder, end, ended)
            return result
        except BaseException as error:
            if token is not None and raised_too:
                quietly(recorder, end, token)
            hide_frame(error)
            raise

    return wrapper


def once_made(recorder: Recorder, kind: Any, report: Callable[[Any], None]) -> Any:
    """Wraps a class's constructor to report each new object."""

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def end(made: Any) -> None:
        if recorder.active:
            report(made)

    kind.__init__ = around(recorder, kind.__init__, begin, end, raised_too=False)
    return kind.__init__


class BuiltIn:
    """Replaces a builtin function. A Python function would bind as a class attribute and be pickled under another name."""

    def __init__(self, original: Any, call: Callable[..., Any], module: str) -> None:
        self._original, self._call = original, call
        self.__module__, self.__doc__ = module, original.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return str(self._original.__name__)
