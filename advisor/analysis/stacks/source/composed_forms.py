"""Recognises an operation in an expression that composes it of elementary ones; names are already written out."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.source.elementwise_forms import ELEMENTWISE_FORMS
from rn50_advisor.advisor.analysis.stacks.source.product_forms import PRODUCT_FORMS
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import (
    LIBRARIES,
    axes_of,
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

SORTS = ("sort", "argsort")
_GELU_CUBED = 0.044715  # Hendrycks and Gimpel 2016, the approximation by tanh
_ALONG = re.compile(r"gather|scatter(?:_add|_reduce)?_?")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def takes_few(node: ast.Subscript) -> bool:
    """True for the first elements of the last dimension, for a known range of them, and for one of them: `x[:, n // 2]`."""
    several = isinstance(node.slice, ast.Tuple) and node.slice.elts
    last = node.slice.elts[-1] if several else node.slice  # type: ignore[attr-defined]
    if not isinstance(last, ast.Slice):
        return bool(several) and (number(last) is not None or isinstance(last, ast.BinOp))
    if last.upper is None or last.step is not None:
        return False
    return last.lower is None or (number(last.lower) is not None and number(last.upper) is not None)


def _has_number(node: ast.AST, value: float) -> bool:
    return any(math.isclose(number(each) or 0.0, value, rel_tol=1e-4) for each in ast.walk(node))


def _arithmetic(node: ast.AST) -> Iterator[ast.BinOp]:
    """An expression's sums and products, outermost first, as far as nothing else is in between."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        yield node
        yield from _arithmetic(node.left)
        yield from _arithmetic(node.right)


def _is_gelu_by_tanh(node: ast.AST) -> bool:
    return is_product(node) and any(_has_number(call, _GELU_CUBED) for call, _ in calls_in(node, "tanh"))


def _is_gelu(node: ast.AST) -> bool:
    """`x * 0.5 * (1 + erf(x / sqrt(2)))`: without the factor `x` it would be a distribution function."""
    if not is_product(node):
        return False
    parts = list(factors(node))
    return any(
        any(same(factor, part) for factor in parts for part in factors(operands[0]) if not _is_constant(part))
        for _, operands in calls_in(node, "erf")
    )


def _is_constant(node: ast.AST) -> bool:
    return not any(isinstance(each, ast.Name) and each.id not in LIBRARIES for each in ast.walk(node))


def _is_silu(node: ast.AST) -> bool:
    parts = list(factors(node)) if is_product(node) else []
    gates = [operands_of(each)[0] for each in parts if isinstance(each, ast.Call) and name_of(each) == "sigmoid"]
    return any(same(gate, factor) for gate in gates for factor in parts)


def _is_softmax(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name_of(node.left) == "exp"):
        return False
    return any(
        same(operands[0], node.left) and axes_of(call, operands) for call, operands in calls_in(node.right, "sum")
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
                if axes and same(operands[0], difference.left) and _is_spread(spread, difference, axes):
                    return axes
    return ()


def _is_spread(node: ast.AST, difference: ast.BinOp, axes: tuple[int, ...]) -> bool:
    """True if it has a standard deviation, or a variance, of what `difference` is centred of."""
    for call, operands in calls_in(node, "var", "std", "mean"):
        of = operands[0] if name_of(call) != "mean" else square(operands[0])
        known = of is not None and (same(of, difference.left) or same(of, difference))
        if known and axes_of(call, operands) == axes:
            return True
    return False


def _is_sorted_prefix(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Subscript) and takes_few(node)):
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
    **PRODUCT_FORMS,
    **ELEMENTWISE_FORMS,
    "sorted prefix": _is_sorted_prefix,
    "repeated index": _is_repeated_index,
}
