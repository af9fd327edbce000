"""Finds the loop that reads a file from its start to the one line that is wanted.

`for number, line in enumerate(file): if number == index: break` reads half of the file on average. So do `islice(file, index, None)` and a
loop that calls `readline` so many times.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from rn50_advisor.advisor.edits.constant_values import values_bound
from rn50_advisor.advisor.edits.origins import set_on_self
from rn50_advisor.advisor.edits.syntax import Code, last_name

_OPENING = ("open", "reader", "DictReader", "TextIOWrapper")  # also gzip.open; csv.reader of an open file
_NEXT = ("readline", "next")
_SLICE = "islice"


def scanned_file(code: Code, line: int) -> str | None:
    """What the loop or call at a line goes through, as the code writes it; None if it is no file, or if all of it is used."""
    for node in ast.walk(code.tree):
        if isinstance(node, ast.For) and node.lineno <= line <= (node.end_lineno or 0):
            if line in _heads(node) and (file := _scanned(code, node)):
                return file
        elif isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
            starts = (
                last_name(node.func) == _SLICE and len(node.args) > 2 and not isinstance(node.args[1], ast.Constant)
            )
            if starts and _is_open_file(code, node.args[0]):
                return f"islice({ast.unparse(node.args[0])}, ...)"
    return None


def _heads(loop: ast.For) -> range:
    """The lines of a loop and of the condition with which its body begins."""
    first = loop.body[0]
    last = first.test if isinstance(first, ast.If) else first
    return range(loop.lineno, (last.end_lineno or loop.lineno) + 1)


def _scanned(code: Code, loop: ast.For) -> str | None:
    counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate" and bool(loop.iter.args)
    if counted and isinstance(loop.target, ast.Tuple):
        file, counter = loop.iter.args[0], loop.target.elts[0]  # type: ignore[attr-defined]
        return ast.unparse(file) if _ends_at(loop, counter) and _is_open_file(code, file) else None
    return _skipped(code, loop)


def _ends_at(loop: ast.For, counter: ast.expr) -> bool:
    """True if the body does nothing but look whether the counter has come to the wanted number, up to there."""
    first = loop.body[0]
    if not isinstance(first, ast.If) or not isinstance(first.test, ast.Compare) or not isinstance(counter, ast.Name):
        return False
    sides = (first.test.left, *first.test.comparators)
    asked = any(isinstance(side, ast.Name) and side.id == counter.id for side in sides)
    others = [side for side in sides if not (isinstance(side, ast.Name) and side.id == counter.id)]
    wanted = all(not isinstance(side, ast.Constant) for side in others)  # a header has a fixed number of lines
    kind = first.test.ops[0]
    if isinstance(kind, ast.Eq):
        left = _leaves(first.body) and len(loop.body) == 1
    else:
        left = isinstance(kind, (ast.NotEq, ast.Lt)) and _goes_on(first.body) and _leaves(loop.body[1:])
    return asked and wanted and left


def _skipped(code: Code, loop: ast.For) -> str | None:
    """The file of `for _ in range(index): file.readline()`."""
    ranged = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "range"
    if not ranged or all(isinstance(given, ast.Constant) for given in loop.iter.args) or len(loop.body) != 1:  # type: ignore[attr-defined]
        return None
    statement = loop.body[0]
    call = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(call, ast.Call):
        return None
    if last_name(call.func) not in _NEXT:
        return None
    file = call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), None)
    return ast.unparse(file) if file is not None and _is_open_file(code, file) else None


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, (ast.Break, ast.Return)) for node in body)


def _goes_on(body: Sequence[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Continue)


def _is_open_file(code: Code, node: ast.expr) -> bool:
    """True for a call that opens a file, and for what such a call is assigned to, by `=` or `with`: a name, or an attribute of `self`."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in _OPENING
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Name):
        values = values_bound(next(iter(code.functions_around(node)), code.tree), node.id)
    elif isinstance(node, ast.Attribute) and (cls := code.class_around(node)) is not None:
        values = set_on_self(cls, node.attr)
    return any(isinstance(made, ast.Call) and last_name(made.func) in _OPENING for made in values)
