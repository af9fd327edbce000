"""Finds the call in a line of the user's code whose cost grows with a whole collection, though a step needs little of it.

The code alone does not say how large the collection is. That the line takes a noticeable share of each step does.
"""

from __future__ import annotations

import ast
import functools

from rn50_advisor.advisor.edits.syntax import Code, dotted_name, last_name, parse_code
from rn50_advisor.advisor.run.stacks.conversions import (
    COPYING,
    DRAWING,
    LIGHT,
    VIEWS,
    is_beside,
    is_conversion,
    is_plain_conversion,
)
from rn50_advisor.advisor.run.stacks.file_scans import scanned_file
from rn50_advisor.advisor.run.stacks.filtered_draws import filtered_draw
from rn50_advisor.advisor.run.stacks.row_gathers import gathered_rows
from rn50_advisor.advisor.run.stacks.source_lines import source_lines
from rn50_advisor.probes.documents.code_places import CollectionCall, CollectionWork
from rn50_advisor.probes.host.stacks.process_stacks import Frame

_SOURCE_MAX = 400_000  # characters: parsing as many takes half a second
_PERMUTING = ("permutation", "randperm", "shuffle")
_JOINING = ("append", "cat", "column_stack", "concat", "concatenate", "hstack", "row_stack", "vstack")
_AT_FRONT = (("pop", 1), ("insert", 2))  # with so many arguments
_SEARCHING = ("index", "remove")
_MODULES = ("os", "shutil")
_CHOICES = ("np.random.choice", "numpy.random.choice")  # a generator's own draws without permuting
_WEIGHTS = {"choice": "p", "choices": "weights"}  # draws, and the argument that gives the chance of each item
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OF_READING = ("decode", "BufferedIncrementalDecoder.decode", "readline", "DictReader.__next__", "__next__", "readable")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@functools.lru_cache(maxsize=256)
def collection_call(frame: Frame, inner: str | None) -> CollectionCall | None:
    """The call at the frame's line; None if there is none. `inner`: the function that the line has called, None for one without a frame."""
    text = "".join(source_lines(frame.file))
    code = parse_code(frame.file, text) if 0 < len(text) <= _SOURCE_MAX else None
    if code is None:
        return None
    if filtered := filtered_draw(code, frame, inner):
        return {"kind": "excludes", "call": filtered}
    return gathered_rows(code, frame, inner) or _called(code, frame, inner) or _other(code, frame, inner)


def _called(code: Code, frame: Frame, inner: str | None) -> CollectionCall | None:
    """The call that goes through a collection by itself."""
    of_line = [call for call in code.calls() if _at(call, frame.line)]
    converting = [call for call in of_line if is_plain_conversion(code, call)]
    calls = converting or _most_often(code, of_line)
    name = None if inner is None else inner.rpartition(".")[2]
    for call in calls:
        runs = (
            name == last_name(call.func)
            if name is not None
            else _is_alone(code, call, of_line if converting else calls)
        )
        work = _work(code, call) if runs else None
        if work is not None:
            return {"kind": work, "call": dotted_name(call.func)}
    return None


def _other(code: Code, frame: Frame, inner: str | None) -> CollectionCall | None:
    """The loop, the index or the search that goes through one."""
    if inner in (None, *_OF_READING) and (scanned := scanned_file(code, frame.line)):
        return {"kind": "scans", "call": scanned}
    if inner is None and (walked := _walked(code, frame.line)):
        return {"kind": "walks", "call": f"{walked}[...]"}
    called = inner is not None or any(_at(call, frame.line) for call in code.calls())
    searched = None if called else _searched(code, frame.line)
    return None if searched is None else {"kind": "searches", "call": f"x in {searched}"}


def _work(code: Code, call: ast.Call) -> CollectionWork | None:
    name = last_name(call.func) or ""
    given = len(call.args)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    kinds: tuple[tuple[CollectionWork, bool], ...] = (
        ("permutes", name in _PERMUTING and _used_in_part(code, call, name)),
        ("permutes", dotted_name(call.func) in _CHOICES and _draws_once(call)),
        ("weighs", name in _WEIGHTS and any(k.arg == _WEIGHTS[name] and _is_named(k.value) for k in call.keywords)),
        ("copies", name in COPYING and owner is None and _is_collection(call.args) and _takes_few(code, call)),
        ("walks", name in DRAWING and bool(call.args) and _is_deque(code, call.args[0])),
        ("grows", name in _JOINING and _joins_to_itself(code, call)),
        ("shifts", owner is not None and (name, given) in _AT_FRONT and _is_first(call.args[0])),
        ("converts", is_conversion(code, call)),
        ("searches", owner is not None and name in _SEARCHING and given == 1 and _is_list(owner)),
    )
    return next((work for work, found in kinds if found), None)


def _most_often(code: Code, calls: list[ast.Call]) -> list[ast.Call]:
    """Of the calls of a line those that a comprehension makes for each of its items, if there are any: others are made once for all."""
    inside = [call for call in calls if any(isinstance(around, _COMPREHENSIONS) for around in code.around(call))]
    return inside if any(last_name(call.func) not in LIGHT for call in inside) else calls


def _is_alone(code: Code, call: ast.Call, calls: list[ast.Call]) -> bool:
    """True if the time of a line without inner frames is this call's: its other calls take none, or have frames.

    Assigning an item of a tensor took 4 µs, the search for a letter beside it 0.1 µs.
    """
    if any(_assigns_item(code, one) for one in calls):
        return False
    converting = is_conversion(code, call)
    return all(
        other is call or last_name(other.func) in LIGHT or (converting and is_beside(code, call, other))
        for other in calls
    )


def _assigns_item(code: Code, call: ast.Call) -> bool:
    statement = next((node for node in code.around(call) if isinstance(node, ast.stmt)), None)
    return isinstance(statement, ast.Assign) and any(isinstance(at, ast.Subscript) for at in statement.targets)


def _is_list(node: ast.expr) -> bool:
    """False for modules whose functions have the same names: `os.remove`."""
    return _is_named(node) and not (isinstance(node, ast.Name) and node.id in _MODULES)


def _used_in_part(code: Code, call: ast.Call, name: str) -> bool:
    """True if the code around a permutation takes a part of it: at once, or by slices of the name that it is assigned to."""
    around = code.parent(call)
    if isinstance(around, ast.Subscript) and around.value is call:
        return True
    places = call.args if name == "shuffle" else around.targets if isinstance(around, ast.Assign) else []
    permuted = places[0] if places else None
    if permuted is None or not _is_named(permuted):
        return False
    scope, loop = next(iter(code.functions_around(call)), code.tree), _loop(code, call)
    text = ast.unparse(permuted)
    # slices in a loop further inside take all of it, one after the other
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, (ast.Slice, ast.Constant))
        and ast.unparse(node.value) == text
        and _loop(code, node) is loop
        for node in ast.walk(scope)
    )


def _loop(code: Code, node: ast.AST) -> ast.AST | None:
    """The innermost loop around a node in its own function."""
    for around in code.around(node):
        if isinstance(around, _LOOPS):
            return around
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
    return None


def _is_deque(code: Code, node: ast.expr) -> bool:
    """True if the file assigns a `deque` to this name, of an object or not."""
    name = last_name(node)
    return name is not None and any(
        isinstance(made, (ast.Assign, ast.AnnAssign))
        and isinstance(made.value, ast.Call)
        and last_name(made.value.func) == "deque"
        and name in {last_name(at) for at in (made.targets if isinstance(made, ast.Assign) else [made.target])}
        for made in ast.walk(code.tree)
    )


def _walked(code: Code, line: int) -> str | None:
    """The deque of which a line takes items by index, other than the first and the last."""
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Subscript) and _at(node, line) and isinstance(node.ctx, ast.Load):
            at_end = isinstance(node.slice, (ast.Constant, ast.UnaryOp))
            if not at_end and _is_deque(code, node.value):
                return dotted_name(node.value)
    return None


def _draws_once(call: ast.Call) -> bool:
    """True without replacement, and without weights."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    once = given.get("replace")
    return isinstance(once, ast.Constant) and once.value is False and "p" not in given


def _is_named(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _is_first(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _is_collection(arguments: list[ast.expr]) -> bool:
    """True for one argument that is named, or the keys or values of a dictionary."""
    if len(arguments) != 1:
        return False
    node = arguments[0]
    view = isinstance(node, ast.Call) and not node.args and last_name(node.func) in VIEWS
    return view or _is_named(node)


def _takes_few(code: Code, call: ast.Call) -> bool:
    """True if the code around a call uses only some items of what it returns."""
    around = code.parent(call)
    drawn = isinstance(around, ast.Call) and last_name(around.func) in DRAWING and around.args[:1] == [call]
    return drawn or (isinstance(around, ast.Subscript) and around.value is call)


def _joins_to_itself(code: Code, call: ast.Call) -> bool:
    """True for `x = cat([x, new])` and `table = table.append(new)` if the result is there in the next round of a loop, or on an object."""
    statement = code.parent(call)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    first = call.args[:1]
    parts = first[0].elts if first and isinstance(first[0], (ast.List, ast.Tuple)) else first
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    target = ast.unparse(statement.targets[0])
    joined = any(ast.unparse(part) == target for part in (*parts, *owner))
    return joined and (isinstance(statement.targets[0], ast.Attribute) or _lasts(code, statement, target))


def _lasts(code: Code, statement: ast.Assign, target: str) -> bool:
    """True if nothing else in the innermost loop around a statement assigns to its target: a layer's input is a new one in each round."""
    loop = _loop(code, statement)
    return loop is not None and not any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id == target
        and code.parent(node) is not statement
        for node in ast.walk(loop)
    )


def _searched(code: Code, line: int) -> str | None:
    """The collection in which a line without a call looks for something by `in`."""
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Compare) and _at(node, line) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return dotted_name(node.comparators[0]) if _is_named(node.comparators[0]) else None
    return None


def _at(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)
