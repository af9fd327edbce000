"""Finds where the source takes some rows of what a call has returned: `self.head(h)[:, -1]`, or `out = model(x)` and `out[mask]` later."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at
from rn50_advisor.advisor.analysis.stacks.source.written_names import statement_at
from rn50_advisor.advisor.model.recording import Source

_METHODS = ("select", "narrow", "index_select", "masked_select")
_SHAPES = ("contiguous", "float", "flatten", "reshape", "squeeze", "view")


def selecting_line(sources: Sequence[Source], file: str, line: int) -> int | None:
    """The line that takes rows of what the call on `line` returns; None if there is none.

    Not one that hands them to another layer (`self.head(h[:, -1])`): what comes before may have to mix rows.
    """
    function = function_at(sources, file, line)
    return None if function is None else _selecting(function, line)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _selecting(function: ast.AST, line: int) -> int | None:
    statement = statement_at(function, line)
    if statement is None:
        return None
    returned = _returned_to(statement)
    handed_on = {id(part) for call in _layer_calls(function) for given in call.args for part in ast.walk(given)}
    for node in ast.walk(function):
        selected = _selected(node)
        if selected is None or id(node) in handed_on:
            continue
        base = _base(selected)
        later = isinstance(base, ast.Name) and base.id == returned and node.lineno > line  # type: ignore[attr-defined]
        if later or (isinstance(base, ast.Call) and covers(base, line)):
            return int(node.lineno)  # type: ignore[attr-defined]
    return None


def _returned_to(statement: ast.stmt) -> str | None:
    """The name that gets what a call returns; None if several do, as the states of a recurrent layer."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.Call):
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _layer_calls(function: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = _base(node.func)
            if isinstance(root, ast.Name) and root.id == "self":
                yield node


def _selected(node: ast.AST) -> ast.expr | None:
    """What rows are taken from. A single number or a key may be of a tuple or a dict."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
        return None if isinstance(index, ast.Constant) else node.value
    method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
    return node.func.value if method else None  # type: ignore[attr-defined]


def _base(node: ast.expr) -> ast.expr:
    """What an attribute, a part of a tuple or of a dict, or a change of shape is of: `model(x)` of `model(x).logits.squeeze(-1)`."""
    while True:
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPES:
            node = node.func.value
        else:
            return node
