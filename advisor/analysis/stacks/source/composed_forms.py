"""Recognises an operation in an expression that composes it of elementary ones; names are already written out."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import LIBRARIES, axes_of, calls_in, name_of, operands_of
from rn50_advisor.advisor.model.analysis import ComposedForm

SORTS = ("sort", "argsort")
_GELU_CUBED = 0.044715  # Hendrycks and Gimpel 2016, the approximation by tanh
_ALONG = re.compile(r"gather|scatter(?:_add|_reduce)?_?")
_VIEWS = (
    "float",
    "half",
    "bfloat16",
    "to",
    "type",
    "type_as",
    "contiguous",
    "view",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def takes_first(node: ast.Subscript) -> bool:
    last = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    return isinstance(last, ast.Slice) and last.lower is None and last.upper is not None and last.step is None


def _same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


def _number(node: ast.AST) -> float | None:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) else None


def _has_number(node: ast.AST, value: float) -> bool:
    return any(math.isclose(_number(each) or 0.0, value, rel_tol=1e-4) for each in ast.walk(node))


def _factors(node: ast.AST) -> Iterator[ast.AST]:
    """What a product multiplies, and divides by."""
    if isinstance(node, ast.BinOp) and _is_product(node):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _arithmetic(node: ast.AST) -> Iterator[ast.BinOp]:
    """An expression's sums and products, outermost first, as far as nothing else is in between."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        yield node
        yield from _arithmetic(node.left)
        yield from _arithmetic(node.right)


def _square(node: ast.AST) -> ast.AST | None:
    """What a square is of."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow) and _number(node.right) == 2:
            return node.left
        return node.left if isinstance(node.op, ast.Mult) and _same(node.left, node.right) else None
    operands = operands_of(node) if isinstance(node, ast.Call) else []
    squared = name_of(node) == "square" or (name_of(node) == "pow" and len(operands) > 1 and _number(operands[1]) == 2)
    return operands[0] if operands and squared else None


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div))


def _is_gelu_by_tanh(node: ast.AST) -> bool:
    return _is_product(node) and any(_has_number(call, _GELU_CUBED) for call, _ in calls_in(node, "tanh"))


def _is_gelu(node: ast.AST) -> bool:
    """`x * 0.5 * (1 + erf(x / sqrt(2)))`: without the factor `x` it would be a distribution function."""
    if not _is_product(node):
        return False
    factors = list(_factors(node))
    return any(
        any(_same(factor, part) for factor in factors for part in _factors(operands[0]) if not _is_constant(part))
        for _, operands in calls_in(node, "erf")
    )


def _is_constant(node: ast.AST) -> bool:
    return not any(isinstance(each, ast.Name) and each.id not in LIBRARIES for each in ast.walk(node))


def _is_silu(node: ast.AST) -> bool:
    factors = list(_factors(node)) if _is_product(node) else []
    gates = [operands_of(each)[0] for each in factors if isinstance(each, ast.Call) and name_of(each) == "sigmoid"]
    return any(_same(gate, factor) for gate in gates for factor in factors)


def _is_softmax(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name_of(node.left) == "exp"):
        return False
    return any(
        _same(operands[0], node.left) and axes_of(call, operands) for call, operands in calls_in(node.right, "sum")
    )


def _normalises(over: Callable[[tuple[int, ...]], bool]) -> Callable[[ast.AST], bool]:
    def matches(node: ast.AST) -> bool:
        axes = next((axes for each in _arithmetic(node) if (axes := _normalised_axes(each))), ())
        return bool(axes) and over(axes)

    return matches


def _normalised_axes(node: ast.BinOp) -> tuple[int, ...]:
    """The dimensions over which this quotient has a mean of zero and a variance of one; empty if it is none."""
    sides = [(node.left, node.right), (node.right, node.left)]
    if isinstance(node.op, ast.Div):
        sides = sides[:1]
    elif isinstance(node.op, ast.Mult):
        sides = [side for side in sides if next(calls_in(side[1], "rsqrt", "reciprocal"), None)]
    else:
        return ()
    for centred, spread in sides:
        for difference in ast.walk(centred):
            if not (isinstance(difference, ast.BinOp) and isinstance(difference.op, ast.Sub)):
                continue
            for mean, operands in calls_in(difference.right, "mean"):
                axes = axes_of(mean, operands)
                if axes and _same(operands[0], difference.left) and _is_spread(spread, difference, axes):
                    return axes
    return ()


def _is_spread(node: ast.AST, difference: ast.BinOp, axes: tuple[int, ...]) -> bool:
    """True if it has a standard deviation, or a variance, of what `difference` is centred of."""
    for call, operands in calls_in(node, "var", "std", "mean"):
        of = operands[0] if name_of(call) != "mean" else _square(operands[0])
        known = of is not None and (_same(of, difference.left) or _same(of, difference))
        if known and axes_of(call, operands) == axes:
            return True
    return False


def _is_distance(node: ast.AST) -> bool:
    """The square, or the norm, of differences of all pairs of rows, summed over their elements."""
    if not (
        isinstance(node, ast.Call)
        and name_of(node) in ("sum", "norm", "vector_norm")
        and (operands := operands_of(node))
    ):
        return False
    summed = name_of(node) == "sum"
    differs = _square(operands[0]) if summed else operands[0]
    axes = axes_of(node, operands if summed else [operands[0], *operands[2:]])  # a norm takes its order first
    if not (isinstance(differs, ast.BinOp) and isinstance(differs.op, ast.Sub)):
        return False
    one, other = _inserted(differs.left), _inserted(differs.right)
    table = isinstance(differs.left, ast.Attribute) or isinstance(differs.right, ast.Attribute)
    return one != other and (table or None not in (one, other)) and (-1 in axes or any(axis > 1 for axis in axes))


def _inserted(node: ast.AST) -> int | None:
    """Where a dimension of one element was put into a tensor."""
    while name_of(node) in ("expand", "expand_as", "repeat", "contiguous"):
        node = operands_of(node)[0]  # type: ignore[arg-type]
    if isinstance(node, ast.Call) and name_of(node) == "unsqueeze":
        return next(iter(axes_of(node, operands_of(node))), None)
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return next((n for n, each in enumerate(parts) if isinstance(each, ast.Constant) and each.value is None), None)
    return None


def _is_one_hot_loss(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and name_of(node) in ("sum", "mean") and (operands := operands_of(node))):
        return False
    products = (each for each in ast.walk(operands[0]) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult))
    return any(
        next(calls_in(one, "log_softmax"), None) and next(calls_in(other, "one_hot"), None)
        for product in products
        for one, other in ((product.left, product.right), (product.right, product.left))
    )


def _is_one_hot_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return _is_one_hot(node.left)
    return (
        isinstance(node, ast.Call)
        and name_of(node) in ("matmul", "mm", "linear")
        and any(map(_is_one_hot, operands_of(node)[:1]))
    )


def _is_one_hot_layer(node: ast.AST) -> bool:
    """`self.project(F.one_hot(x, n).float())`; which layer it is, stacks tell."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords):
        return False
    return name_of(node) not in _VIEWS and _is_one_hot(node.args[0])


def _is_one_hot(node: ast.AST) -> bool:
    """True for `one_hot(x, n)` and `eye(n)[x]` in any type."""
    while name_of(node) in _VIEWS:
        node = operands_of(node)[0]  # type: ignore[arg-type]
    return name_of(node) == "one_hot" or (isinstance(node, ast.Subscript) and name_of(node.value) == "eye")


def _is_sorted_prefix(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Subscript) and takes_first(node)):
        return False
    of: ast.AST = node.value
    while isinstance(of, (ast.Subscript, ast.Attribute)):  # `.indices`, `[1]`
        of = of.value
    return name_of(of) in SORTS


def _is_repeated_index(node: ast.AST) -> bool:
    """A gather or scatter along a dimension, by an index that is copied for each element of a row."""
    if not (isinstance(node, ast.Call) and _ALONG.fullmatch(name_of(node))):
        return False
    named = [each.value for each in node.keywords if each.arg == "index"]
    index = [*named, *operands_of(node)[2:3]]
    return bool(index) and next(calls_in(index[0], "repeat"), None) is not None


FORMS: Mapping[ComposedForm, Callable[[ast.AST], bool]] = {
    "gelu by tanh": _is_gelu_by_tanh,
    "gelu": _is_gelu,
    "silu": _is_silu,
    "softmax": _is_softmax,
    "batch norm": _normalises(lambda axes: 0 in axes),
    "instance norm": _normalises(lambda axes: len(axes) > 1 and min(axes) > 0),
    "layer norm of channels": _normalises(lambda axes: axes == (1,)),
    "layer norm": _normalises(lambda axes: True),
    "distances": _is_distance,
    "cross entropy of one-hot targets": _is_one_hot_loss,
    "product with one-hot rows": _is_one_hot_product,
    "layer on one-hot rows": _is_one_hot_layer,
    "sorted prefix": _is_sorted_prefix,
    "repeated index": _is_repeated_index,
}
