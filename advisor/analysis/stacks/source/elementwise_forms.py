"""Recognises activations and losses that an expression composes of elementwise operations; names are already written out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import (
    calls_in,
    factors,
    is_product,
    name_of,
    number,
    operands_of,
    same,
    square,
)
from rn50_advisor.advisor.model.analysis import ComposedForm

_OF_SIGMOID = ("sigmoid",)


def _where(node: ast.AST) -> tuple[ast.Compare, ast.expr, ast.expr] | None:
    """Condition and values of `torch.where(a > b, x, y)`."""
    operands = operands_of(node) if isinstance(node, ast.Call) and name_of(node) == "where" else []
    if len(operands) != 3 or not isinstance(operands[0], ast.Compare) or len(operands[0].ops) != 1:
        return None
    return operands[0], operands[1], operands[2]


def _is_positive(node: ast.AST, x: ast.AST) -> bool:
    """True for `x > 0` and `x >= 0`."""
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Gt, ast.GtE))):
        return False
    return same(node.left, x) and number(node.comparators[0]) == 0


def _scales(node: ast.AST, x: ast.AST) -> bool:
    """True for a multiple of `x` by a number or a setting."""
    parts = list(factors(node)) if is_product(node) else []
    others = [each for each in parts if not same(each, x)]
    settings = all(number(each) is not None or isinstance(each, ast.Attribute) for each in others)
    return len(others) == len(parts) - 1 and settings


def _is_relu(node: ast.AST) -> bool:
    """`x * (x > 0).float()`."""
    parts = list(factors(node)) if is_product(node) else []
    masks = [_uncast(each) for each in parts]
    return any(_is_positive(mask, x) for mask in masks for x in parts)


def _uncast(node: ast.AST) -> ast.AST:
    while name_of(node) in ("float", "to", "type", "type_as"):
        node = operands_of(node)[0]  # type: ignore[arg-type]
    return node


def _greater(node: ast.AST) -> list[ast.expr]:
    """The two tensors of which `torch.max` or `torch.maximum` takes the greater elements."""
    named = isinstance(node, ast.Call) and name_of(node) in ("max", "maximum") and not node.keywords
    operands = operands_of(node) if named else []  # type: ignore[arg-type]
    return operands if len(operands) == 2 and number(operands[1]) is None else []


def _is_relu_by_maximum(node: ast.AST) -> bool:
    """`torch.max(x, torch.zeros_like(x))` and `torch.maximum(x, 0.2 * x)`."""
    pair = _greater(node)
    ways = (pair, pair[::-1]) if pair else ()
    return any(_scales(other, one) or name_of(other) == "zeros_like" for one, other in ways)


def _is_leaky_relu(node: ast.AST) -> bool:
    """`torch.where(x > 0, x, 0.2 * x)`."""
    found = _where(node)
    return found is not None and _is_positive(found[0], found[1]) and _scales(found[2], found[1])


def _is_elu(node: ast.AST) -> bool:
    """`torch.where(x > 0, x, a * (torch.exp(x) - 1))`."""
    found = _where(node)
    if found is None or not _is_positive(found[0], found[1]):
        return False
    return any(same(operands[0], found[1]) for _, operands in calls_in(found[2], "exp", "expm1"))


def _is_hardswish(node: ast.AST) -> bool:
    """`x * F.relu6(x + 3) / 6`."""
    parts = list(factors(node)) if is_product(node) else []
    steps = [each for each in parts if name_of(each) in ("relu6", "clamp", "hardtanh")]
    shifted = [operands_of(each)[0] for each in steps if isinstance(each, ast.Call)]
    return any(
        isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add) and number(each.right) == 3 and same(each.left, x)
        for each in shifted
        for x in parts
    )


def _is_smooth_l1(node: ast.AST) -> bool:
    """`torch.where(d < 1, 0.5 * d**2, d - 0.5)` of an absolute difference."""
    found = _where(node)
    if found is None or not isinstance(found[0].ops[0], (ast.Lt, ast.LtE)) or name_of(found[0].left) != "abs":
        return False
    d = found[0].left
    squares = (square(each) for each in ast.walk(found[1]))
    return any(of is not None and same(of, d) for of in squares) and any(same(each, d) for each in ast.walk(found[2]))


def _is_squared_error(node: ast.AST) -> bool:
    """`((x - y) ** 2).mean()`, over all elements."""
    operands = operands_of(node) if isinstance(node, ast.Call) and name_of(node) == "mean" else []
    of = square(operands[0]) if len(operands) == 1 and not node.keywords else None  # type: ignore[attr-defined]
    return isinstance(of, ast.BinOp) and isinstance(of.op, ast.Sub)


def _is_binary_cross_entropy(node: ast.AST) -> bool:
    """`y * log(p) + (1 - y) * log(1 - p)` of a sigmoid's `p`: of other probabilities torch's operation is slower."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))):
        return False
    sides = [list(_logged(side)) for side in (node.left, node.right)]
    if any(len(side) != 1 for side in sides) or not all(next(calls_in(side[0], *_OF_SIGMOID), None) for side in sides):
        return False
    rest = [
        [each for each in factors(side) if name_of(each) != "log" and number(_unsigned(each)) is None]
        for side in map(_unsigned, (node.left, node.right))
    ]
    if any(len(each) != 1 for each in rest):
        return False
    (one,), (other,) = rest
    return _is_rest_of(other, _unsigned(one)) or _is_rest_of(_unsigned(one), other)


def _logged(node: ast.AST) -> Iterator[ast.expr]:
    """What a product has the logarithms of."""
    for each in factors(_unsigned(node)):
        if name_of(each) == "log" and isinstance(each, ast.Call) and (operands := operands_of(each)):
            yield operands[0]


def _unsigned(node: ast.AST) -> ast.AST:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node


def _is_rest_of(node: ast.AST, of: ast.AST) -> bool:
    """True for `1 - y`."""
    return (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and number(node.left) == 1 and same(node.right, of)
    )


def _is_log_of_softmax(node: ast.AST) -> bool:
    """`torch.log(torch.softmax(x, -1) + 1e-9)`."""
    if not (isinstance(node, ast.Call) and name_of(node) == "log" and (operands := operands_of(node))):
        return False
    of = operands[0]
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Add) and number(of.right) is not None:
        of = of.left
    return name_of(of) == "softmax" or (name_of(of) == "clamp" and name_of(operands_of(of)[0]) == "softmax")  # type: ignore[arg-type]


def _is_one_hot_loss(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and name_of(node) in ("sum", "mean") and (operands := operands_of(node))):
        return False
    products = (each for each in ast.walk(operands[0]) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult))
    return any(
        next(calls_in(one, "one_hot"), None)
        and (next(calls_in(other, "log_softmax"), None) or any(map(_is_log_of_softmax, ast.walk(other))))
        for product in products
        for one, other in ((product.left, product.right), (product.right, product.left))
    )


ELEMENTWISE_FORMS: Mapping[ComposedForm, Callable[[ast.AST], bool]] = {
    "relu by a mask": _is_relu,
    "relu by a maximum": _is_relu_by_maximum,
    "leaky relu": _is_leaky_relu,
    "elu": _is_elu,
    "hardswish": _is_hardswish,
    "smooth L1 loss": _is_smooth_l1,
    "squared error": _is_squared_error,
    "binary cross entropy": _is_binary_cross_entropy,
    "cross entropy of one-hot targets": _is_one_hot_loss,
    "logarithm of softmax": _is_log_of_softmax,
}
