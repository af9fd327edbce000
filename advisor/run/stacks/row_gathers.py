"""Finds the comprehension that takes rows of one array or tensor one by one, in order to join them again.

`torch.stack([series[at + k] for k in range(size)])` makes a tensor for each row and copies all of them; a slice of the same rows is a view.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rn50_advisor.advisor.edits.syntax import Code, dotted_name, last_name
from rn50_advisor.advisor.run.stacks.arrays_in_code import ARRAY_LIBRARIES, is_array
from rn50_advisor.advisor.run.stacks.conversions import LIGHT
from rn50_advisor.probes.documents.code_places import CollectionCall
from rn50_advisor.probes.host.stacks.process_stacks import Frame

_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)
# `torch.tensor` and the like are conversions, which take longer than the rows.
_JOINING = ("array", "cat", "concat", "concatenate", "hstack", "stack", "vstack")
_LISTING = ("list", "tuple")
# What may be done to a row that can as well be done to all rows at once.
_OF_ROW = ("astype", "clone", "contiguous", "copy", "cpu", "detach", "double", "float", "half", "int", "item", "long", "numpy", "reshape",
           "squeeze", "to", "tolist", "unsqueeze", "view")  # fmt: skip
_TO_ROW = ("as_tensor", "asarray", "float", "from_numpy", "int", "tensor")
_IN_INDEX = ("int", "len", "max", "min")
_AFTER = ("bool", "cuda", "from_numpy", *_OF_ROW)
_OWN_FRAMES = ("<listcomp>", "<genexpr>")  # before Python 3.12; then only generators have one


def gathered_rows(code: Code, frame: Frame, inner: str | None) -> CollectionCall | None:
    """The array whose rows the frame's line takes one by one. `inner`: the function that the line has called, None without a frame."""
    for rows, join in _joined(code, frame.line):
        if not any(node.lineno <= frame.line <= (node.end_lineno or 0) for node in (rows, join)):
            continue
        inside = frame.function.endswith(_OWN_FRAMES)
        runs = inner is None or (not inside and inner == last_name(join.func))
        array = _array_of(code, rows) if runs and (inside or _is_alone(code, frame.line)) else None
        if array is not None:
            return {"kind": "slices" if _is_run(rows) else "gathers", "call": dotted_name(array)}
    return None


def _joined(code: Code, line: int) -> Iterator[tuple[ast.ListComp | ast.GeneratorExp, ast.Call]]:
    """Yields each comprehension of the function around a line that is only made to be joined, there or under a name, with the join."""
    for call in ast.walk(code.function_at(line) or code.tree):
        if not isinstance(call, ast.Call) or not _joins(call):
            continue
        given = call.args[0]
        if isinstance(given, ast.Call) and last_name(given.func) in _LISTING and len(given.args) == 1:
            given = given.args[0]
        if isinstance(given, ast.Name):
            given = _only_for(code, given) or given
        if isinstance(given, _COMPREHENSIONS):
            yield given, call


def _joins(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    of_library = isinstance(owner, ast.Name) and owner.id in ARRAY_LIBRARIES
    return of_library and last_name(call.func) in _JOINING and bool(call.args)


def _only_for(code: Code, name: ast.Name) -> ast.expr | None:
    """The comprehension that is assigned to a name which is used here alone."""
    scope = next(iter(code.functions_around(name)), code.tree)
    uses = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name.id]
    made = code.parent(next((node for node in uses if isinstance(node.ctx, ast.Store)), name))
    return made.value if len(uses) == 2 and isinstance(made, ast.Assign) and len(made.targets) == 1 else None


def _is_alone(code: Code, line: int) -> bool:
    """True if a line calls nothing beside gathers, what takes no time, and what shapes their result."""
    parts = {id(node) for rows, join in _joined(code, line) for of in (rows, join) for node in ast.walk(of)}
    return all(
        id(call) in parts or last_name(call.func) in (*LIGHT, *_AFTER)
        for call in code.calls()
        if call.lineno <= line <= (call.end_lineno or 0)
    )


def _array_of(code: Code, rows: ast.ListComp | ast.GeneratorExp) -> ast.expr | None:
    """The array of which each element is a row; None if the elements are anything else."""
    if len(rows.generators) != 1:
        return None
    varying, node = _variables(rows), rows.elt
    indices = list[ast.expr]()
    while not isinstance(node, (ast.Name, ast.Attribute)):
        if isinstance(node, ast.Subscript):
            indices += node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_ROW:
            node = node.func.value
        elif isinstance(node, ast.Call) and last_name(node.func) in _TO_ROW and len(node.args) == 1:
            node = node.args[0]
        else:
            return None
    taken = [index for index in indices if _names(index) & varying]
    named = any(
        isinstance(index, ast.Constant) and isinstance(index.value, str) for index in indices
    )  # one of several arrays
    plain = bool(taken) and not named and not _names(node) & varying and all(map(_is_place, taken))
    return node if plain and is_array(code, node) else None


def _is_place(index: ast.expr) -> bool:
    """True for one place along an axis, without a slice and without calls that take time."""
    parts = [*ast.walk(index)]
    calls = [part for part in parts if isinstance(part, ast.Call)]
    return not any(isinstance(part, ast.Slice) for part in parts) and all(
        (isinstance(call.func, ast.Name) and call.func.id in _IN_INDEX) or last_name(call.func) == "item"
        for call in calls
    )


def _is_run(rows: ast.ListComp | ast.GeneratorExp) -> bool:
    """True if the rows lie at equal distances, one after the other: their index is a sum with the counter of a `range`."""
    turn, varying = rows.generators[0], _variables(rows)
    ranged = isinstance(turn.iter, ast.Call) and last_name(turn.iter.func) == "range" and not turn.ifs
    taken = [
        index
        for node in ast.walk(rows.elt)
        if isinstance(node, ast.Subscript)
        for index in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        if _names(index) & varying
    ]
    return ranged and len(taken) == 1 and _rises(taken[0], varying)


def _rises(index: ast.expr, varying: set[str]) -> bool:
    if isinstance(index, ast.Name):
        return True
    if not isinstance(index, ast.BinOp):
        return False
    left, right = (bool(_names(side) & varying) for side in (index.left, index.right))
    if left and right:
        return False
    linear = isinstance(index.op, (ast.Add, ast.Mult)) or (isinstance(index.op, ast.Sub) and left)
    return linear and _rises(index.left if left else index.right, varying)


def _variables(rows: ast.ListComp | ast.GeneratorExp) -> set[str]:
    return {name for turn in rows.generators for name in _names(turn.target)}


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
