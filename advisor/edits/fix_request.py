"""What a fix asks for, read from its own words: `DataLoader(..., num_workers=6, persistent_workers=True)` is a call and its arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

Value = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Request:
    """Arguments that the call at the fix's place is to have, the one that matters most first."""

    call: str
    arguments: Mapping[str, Value]


def request_of(change: str) -> Request | None:
    """None where the change is not written as a call with `...` and keywords of literal values; what follows the call is for people."""
    end = 0
    while (end := change.find(")", end) + 1) > 0:
        try:
            node = ast.parse(change[:end], mode="eval").body
        except (SyntaxError, ValueError):
            continue
        return _request(node)
    return None


def _request(node: ast.expr) -> Request | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.keywords:
        return None
    if not (len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value is ...):
        return None
    arguments: dict[str, Value] = {}
    for keyword in node.keywords:
        if keyword.arg is None or not is_literal(keyword.value):
            return None
        arguments[keyword.arg] = literal(keyword.value)
    return Request(node.func.id, arguments)


def is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool, str, type(None)))


def literal(node: ast.expr) -> Value:
    """The value of a node that `is_literal`."""
    value: Value = ast.literal_eval(node)
    return value
