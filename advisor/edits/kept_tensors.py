"""Finds statements of a training loop that keep tensors of each step, and with them its graph."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from rn50_advisor.advisor.edits.syntax import Code, inside, last_name

_KEEPING = ("append", "appendleft", "add", "extend", "insert")
# Methods and attributes whose result holds no graph.
_RELEASING = frozenset(
    {"item", "tolist", "detach", "numpy", "float", "int", "str", "len", "argmax", "size", "data", "shape"}
)
# Methods whose result holds the graph of their tensor. Of other calls the code does not show what they return.
_HOLDING = frozenset(
    {"abs", "clone", "cpu", "cuda", "float", "half", "mean", "reshape", "squeeze", "sum", "to", "view"}
)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def kept_in_steps(code: Code) -> list[ast.stmt]:
    """Statements that append a loss or an output of each step to what the loop does not make anew, or add it to a total."""
    found = []
    stepping = _stepping(code)
    for loop in _training_loops(code, stepping):
        made = _assigned(loop)
        graphs = _with_graphs(loop, made, stepping)
        found += [node for node in ast.walk(loop) if isinstance(node, ast.stmt) and _keeps(node, graphs, set(made))]
    return found


def _training_loops(code: Code, stepping: Collection[str]) -> Iterator[ast.AST]:
    """The innermost loop around each backward pass, or around the call of the function that makes it."""
    seen = set()
    for call in code.calls():
        loop = next((n for n in code.around(call) if isinstance(n, LOOPS)), None)
        if last_name(call.func) in {"backward", *stepping} and loop is not None and id(loop) not in seen:
            seen.add(id(loop))
            yield loop


def _stepping(code: Code) -> set[str]:
    """Functions that make a backward pass outside of any loop, and return its loss or an output."""
    found = set()
    for call in code.calls():
        function = next(iter(code.functions_around(call)), None)
        if last_name(call.func) != "backward" or function is None:
            continue
        graphs = _with_graphs(function, _assigned(function), ())
        returned = [n.value for n in inside(function) if isinstance(n, ast.Return) and n.value is not None]
        if any(name in graphs for value in returned for name in _names(value)):
            found.add(function.name)
    return found


def _assigned(loop: ast.AST) -> dict[str, list[ast.expr]]:
    """The values that a loop assigns to names by `=`. A name that it adds to is none of them."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(loop):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        found.setdefault(name.id, []).append(node.value)
    return found


def _with_graphs(loop: ast.AST, made: dict[str, list[ast.expr]], stepping: Collection[str]) -> set[str]:
    """The losses of backward passes, the names that these are computed of, and what functions return that make such a pass."""
    calls = [call for call in ast.walk(loop) if isinstance(call, ast.Call)]
    left = [name for call in calls if last_name(call.func) == "backward" for name in _names(call)]
    left += [name for name, values in made.items() if any(_is_call_of(value, stepping) for value in values)]
    graphs: set[str] = set()
    while left:
        name = left.pop()
        if name in made and name not in graphs:
            graphs.add(name)
            left += [inner for value in made[name] for inner in _names(value)]
    return graphs


def _is_call_of(value: ast.expr, names: Collection[str]) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in names


def _names(node: ast.AST) -> list[str]:
    """Names that an expression is computed of, except those of which it holds no graph."""
    if _releases(node):
        return []
    if isinstance(node, ast.Name):
        return [node.id]
    return [name for child in ast.iter_child_nodes(node) for name in _names(child)]


def _releases(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _RELEASING
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Attribute) and node.attr in _RELEASING)


def _held(node: ast.AST) -> list[str]:
    """Names of which a value certainly holds the tensor, or one computed of it."""
    if isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute) and node.func.attr in _HOLDING
        return _held(node.func.value) if isinstance(node.func, ast.Attribute) and method else []
    if _releases(node):
        return []
    if isinstance(node, ast.Name):
        return [node.id]
    return [name for child in ast.iter_child_nodes(node) for name in _held(child)]


def _keeps(node: ast.stmt, graphs: set[str], made: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        anew = isinstance(node.target, ast.Name) and node.target.id in made
        kept = [] if anew else [node.value]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        owner = node.value.func.value
        anew = isinstance(owner, ast.Name) and owner.id in made
        kept = node.value.args if node.value.func.attr in _KEEPING and not anew else []
    else:
        return False
    return any(name in graphs for value in kept for name in _held(value))
