"""Reads calls of torch in an expression: what is called, with which operands, over which dimensions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rn50_advisor.advisor.analysis.stacks.source.written_names import last_name

LIBRARIES = frozenset(("torch", "F", "nn", "functional", "math", "np", "numpy", "linalg", "special"))


def name_of(node: ast.AST) -> str:
    """The last name of what is called; empty for no call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def operands_of(call: ast.Call) -> list[ast.expr]:
    """What it computes with first: `torch.pow(x, 2)` and `x.pow(2)` have the same ones."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return call.args
    return call.args if last_name(function.value) in LIBRARIES else [function.value, *call.args]


def calls_in(node: ast.AST, *names: str) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
    """(call, operands) of all calls of these names inside an expression."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and name_of(call) in names and (operands := operands_of(call)):
            yield call, operands


def axes_of(call: ast.Call, operands: list[ast.expr]) -> tuple[int, ...]:
    """The dimensions that a reduction names; empty if it names none, or not by numbers."""
    given = next((each.value for each in call.keywords if each.arg in ("dim", "axis")), None) or next(
        iter(operands[1:]), None
    )
    try:
        found = () if given is None else ast.literal_eval(given)
    except ValueError:
        return ()
    axes = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(axis for axis in axes if isinstance(axis, int) and not isinstance(axis, bool))


def same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


def number(node: ast.AST) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) else None


def factors(node: ast.AST) -> Iterator[ast.AST]:
    """What a product multiplies, and divides by."""
    if isinstance(node, ast.BinOp) and is_product(node):
        yield from factors(node.left)
        yield from factors(node.right)
    else:
        yield node


def square(node: ast.AST) -> ast.AST | None:
    """What a square is of."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow) and number(node.right) == 2:
            return node.left
        return node.left if isinstance(node.op, ast.Mult) and same(node.left, node.right) else None
    operands = operands_of(node) if isinstance(node, ast.Call) else []
    squared = name_of(node) == "square" or (name_of(node) == "pow" and len(operands) > 1 and number(operands[1]) == 2)
    return operands[0] if operands and squared else None


def is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div))
