"""Finds the call that a thread is in while it makes an item, if that call repeats the same work for each item."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.edits.constant_values import OPENS, Values
from rn50_advisor.advisor.edits.names import parameters
from rn50_advisor.advisor.edits.syntax import Code, Function, dotted_name, last_name, parse_code
from rn50_advisor.advisor.run.stacks.source_lines import source_lines
from rn50_advisor.probes.host.stacks.process_stacks import Frame, is_user_file

_SOURCE_MAX = 400_000  # characters: parsing as many takes half a second
_CALLERS_MAX = 8  # a function that calls itself may have a thousand
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp)
_WRAPPING = ("len", "list", "sorted", "tuple")
_IN_C = (
    "pickle.load",
    "pickle.loads",
    "np.fromfile",
    "numpy.fromfile",
    "np.frombuffer",
    "numpy.frombuffer",
)  # leave no frame
_QUICK = ("Path", "divmod", "float", "format", "from_numpy", "int", "len", "open", "str")  # beside these
_CONSTRUCTORS = ("__init__", "__new__")


@dataclass(frozen=True, slots=True)
class Running:
    """A frame of the user's with the source of its function."""

    frame: Frame
    code: Code
    function: Function


@functools.lru_cache(maxsize=256)
def repeated_call(frames: tuple[Frame, ...]) -> str | None:
    """The name of the call, for example `zipfile.ZipFile`; None if the code does not show that it repeats the same work.

    `frames`: innermost first, down to the function that the fetcher calls. The innermost call of the user's code counts: it opens, reads
    or builds something, and all its arguments are the same for each item.
    """
    depth = next((n for n, frame in enumerate(frames) if is_user_file(frame.file)), None)
    running = None if depth is None else running_at(frames[depth])
    if depth is None or running is None:
        return None
    callers = frames[depth + 1 : depth + 1 + _CALLERS_MAX]
    call = called(running, frames[depth - 1].function if depth else None)
    if call is None or not _each_time(running, call):
        return None
    return dotted_name(call.func) if values_of(running, callers).same_call(call) else None


def values_of(running: Running, callers: Sequence[Frame]) -> Values:
    """The values of a function's expressions, with parameters that its callers set to the same for each item."""
    return Values(running.code, running.function, _constant_parameters(running, callers))


def running_at(frame: Frame) -> Running | None:
    text = "".join(source_lines(frame.file))
    code = parse_code(frame.file, text) if 0 < len(text) <= _SOURCE_MAX else None
    if code is None:
        return None
    function = code.function_at(frame.line)
    return Running(frame, code, function) if function is not None else None


def called(running: Running, inner: str | None, names: re.Pattern[str] = OPENS) -> ast.Call | None:
    """The call of such a name at the frame's line that is being executed. `inner`: the function that it has called; None for one in C."""
    line = running.frame.line
    calls = [call for call in running.code.calls() if call.lineno <= line <= (call.end_lineno or 0)]
    calls = [call for call in calls if running.function in running.code.functions_around(call)[:1]]
    opening = [call for call in calls if names.match(last_name(call.func) or "")]
    calls = [call for call in calls if not _only_wraps(call, opening)]
    if inner is not None and len(calls) > 1:
        opening = [call for call in opening if _is_call_of(call, inner)]
    elif len(calls) != 1:
        working = [call for call in calls if last_name(call.func) not in _QUICK]
        if len(working) != 1 or dotted_name(working[0].func) not in _IN_C:
            return None
        opening = [call for call in opening if call is working[0]]
    # of objects that are made within each other, the outermost: `Compose([Resize(96), ToTensor()])`
    whole = (call for call in opening if {*opening} <= {*ast.walk(call)})
    return next(whole, None)


def _only_wraps(call: ast.Call, others: Sequence[ast.Call]) -> bool:
    """True for `sorted(os.listdir(path))`: what it makes of the same is the same."""
    named = isinstance(call.func, ast.Name) and call.func.id in _WRAPPING
    return named and bool({*others} & {*call.args})


def _is_call_of(call: ast.Call, inner: str) -> bool:
    """True if a call may have led to this function, as a profiler names it: `load` or `ZipFile.__init__`."""
    name, function = last_name(call.func) or "", inner.rpartition(".")[2]
    return name == function or (function in _CONSTRUCTORS and name[:1].isupper())


def _each_time(running: Running, call: ast.Call) -> bool:
    """False for a call that a generator makes once, before its items."""
    generator = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(running.function))
    return not generator or any(
        isinstance(node, _LOOPS) and running.function in running.code.functions_around(node)
        for node in running.code.around(call)
    )


def _constant_parameters(running: Running, callers: Sequence[Frame]) -> frozenset[str]:
    """Parameters that the user's code next outside sets to the same value for each item; none of the function that a library calls."""
    caller, given = given_by_caller(running, callers)
    if caller is None:
        return frozenset()
    values = values_of(caller, callers[1:])
    return frozenset(name for name in parameters(running.function) if name not in given or values.same(given[name]))


def given_by_caller(running: Running, callers: Sequence[Frame]) -> tuple[Running | None, dict[str, ast.expr]]:
    """The user's function next outside, and the arguments that it hands over; None where the code does not show them."""
    caller = running_at(callers[0]) if callers and is_user_file(callers[0].file) else None
    call = call_by_user(caller, running.function.name) if caller is not None else None
    starred = call is not None and any(
        a.arg is None if isinstance(a, ast.keyword) else isinstance(a, ast.Starred)
        for a in (*call.args, *call.keywords)
    )
    if caller is None or call is None or starred:
        return None, {}
    names = parameters(running.function)
    given = dict(zip(names[1 if names[:1] in (["self"], ["cls"]) else 0 :], call.args, strict=False))
    return caller, given | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def call_by_user(caller: Running, name: str) -> ast.Call | None:
    """The only call of a function of this name at the frame's line."""
    line = caller.frame.line
    calls = [call for call in caller.code.calls() if call.lineno <= line <= (call.end_lineno or 0)]
    found = [call for call in calls if last_name(call.func) == name]
    return found[0] if len(found) == 1 else None
