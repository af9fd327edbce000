"""Recognises a product of matrices that an expression computes in a slow form: by all pairs of rows, with one-hot or diagonal matrices, or
by the columns of a convolution. Names are already written out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import (
    LIBRARIES,
    axes_of,
    calls_in,
    name_of,
    operands_of,
    square,
)
from rn50_advisor.advisor.analysis.stacks.source.written_names import last_name
from rn50_advisor.advisor.model.analysis import ComposedForm

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
_TRANSPOSED, _TRANSPOSING = ("T", "mT"), ("t", "transpose", "permute", "swapaxes")
_SPREAD = ("expand", "expand_as", "repeat", "contiguous")
_PRODUCTS = ("matmul", "mm", "bmm", "linear", "einsum")
_OF_PAIRS = ("cosine_similarity", "pairwise_distance")
# What a vector is made of before it becomes the diagonal of a matrix; `torch.diag` of a matrix takes its diagonal out.
_OF_A_VECTOR = re.compile(r"abs|clamp|exp|float|norm|pow|reciprocal|rsqrt|sigmoid|sqrt|squeeze|sum|to|view")


def inserted(node: ast.AST) -> int | None:
    """Where a dimension of one element was put into a tensor."""
    while name_of(node) in _SPREAD:
        node = operands_of(node)[0]  # type: ignore[arg-type]
    if isinstance(node, ast.Call) and name_of(node) == "unsqueeze":
        return next(iter(axes_of(node, operands_of(node))), None)
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return next((n for n, each in enumerate(parts) if isinstance(each, ast.Constant) and each.value is None), None)
    return None


def _are_pairs(one: ast.AST, other: ast.AST) -> bool:
    """True if each row of one meets each of the other: one of them may be a table, which is no argument."""
    places = inserted(one), inserted(other)
    table = isinstance(one, ast.Attribute) or isinstance(other, ast.Attribute)
    return places[0] != places[1] and (table or None not in places)


def _reduced(node: ast.AST, *names: str) -> tuple[ast.expr, tuple[int, ...]] | None:
    """What a call reduces, and over which dimensions."""
    operands = operands_of(node) if isinstance(node, ast.Call) and name_of(node) in names else []
    return (operands[0], axes_of(node, operands)) if operands else None  # type: ignore[arg-type]


def _differs(of: ast.AST | None, axes: tuple[int, ...]) -> bool:
    """True for differences of all pairs that are reduced over their elements."""
    if not (isinstance(of, ast.BinOp) and isinstance(of.op, ast.Sub)):
        return False
    return _are_pairs(of.left, of.right) and (-1 in axes or any(axis > 1 for axis in axes))


def _is_distance(node: ast.AST) -> bool:
    """The square, or the norm, of differences of all pairs of rows."""
    if reduced := _reduced(node, "sum", "mean"):
        return _differs(square(reduced[0]), reduced[1])
    if isinstance(node, ast.Call) and name_of(node) in ("norm", "vector_norm") and (operands := operands_of(node)):
        return _differs(operands[0], axes_of(node, [operands[0], *operands[2:]]))  # a norm takes its order first
    return _is_of_pairs(node, "pairwise_distance")


def _is_absolute_distance(node: ast.AST) -> bool:
    reduced = _reduced(node, "sum", "mean")
    of = operands_of(reduced[0]) if reduced and isinstance(reduced[0], ast.Call) else []
    return bool(reduced and of) and name_of(reduced[0]) == "abs" and _differs(of[0], reduced[1])  # type: ignore[index]


def _is_of_pairs(node: ast.AST, name: str) -> bool:
    operands = operands_of(node)[:2] if isinstance(node, ast.Call) and name_of(node) == name else []
    return len(operands) > 1 and _are_pairs(*operands)


def _is_similarity(node: ast.AST) -> bool:
    return _is_of_pairs(node, "cosine_similarity")


def _is_similarity_layer(node: ast.AST) -> bool:
    """`self.similarity(a.unsqueeze(1), b.unsqueeze(0))`; which layer it is, stacks tell."""
    called = isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords and name_of(node) not in _OF_PAIRS
    return called and _are_pairs(*node.args)  # type: ignore[attr-defined]


def _is_sum_of_products(node: ast.AST) -> bool:
    """Products of all pairs summed over the dimension that both have."""
    reduced = _reduced(node, "sum")
    of = reduced[0] if reduced else None
    if reduced is None or not (isinstance(of, ast.BinOp) and isinstance(of.op, ast.Mult)):
        return False
    places = {inserted(of.left), inserted(of.right)}
    return None not in places and len(places) > 1 and bool(reduced[1]) and places.isdisjoint(reduced[1])


def _factors_of(node: ast.AST) -> list[ast.expr]:
    """The matrices of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and name_of(node) in _PRODUCTS:
        return [each for each in operands_of(node) if not isinstance(each, ast.Constant)]
    return []


def _is_convolution(node: ast.AST) -> bool:
    """A product of weights and of the columns that `F.unfold` makes of pictures."""
    matrices = _factors_of(node)
    columns = [each for each in matrices if any(map(_makes_columns, ast.walk(each)))]
    weights = [each for each in matrices if _names(each) == {"self"}]
    return len(columns) == 1 and any(each is not columns[0] for each in weights)


def _makes_columns(node: ast.AST) -> bool:
    """True for `F.unfold(x, 3)` and for a layer `self.unfold(x)`; `x.unfold(2, 3, 1)` is a view."""
    if name_of(node) != "unfold":
        return False
    function = node.func  # type: ignore[attr-defined]
    owner = last_name(function.value) if isinstance(function, ast.Attribute) else ""
    return not owner or owner in LIBRARIES or (owner == "self" and len(node.args) == 1)  # type: ignore[attr-defined]


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id not in LIBRARIES}


def _is_diagonal_product(node: ast.AST) -> bool:
    return any(map(_is_diagonal, _factors_of(node)[:2]))


def _is_diagonal(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and (operands := operands_of(node))):
        return False
    if name_of(node) == "diag_embed":
        return True
    calls = [each for each in ast.walk(operands[0]) if isinstance(each, ast.Call)]
    return name_of(node) == "diag" and all(_OF_A_VECTOR.fullmatch(name_of(each)) for each in calls)


def _is_one_hot_product(node: ast.AST) -> bool:
    return any(map(_is_one_hot, _factors_of(node)[:1]))


def _is_sum_by_one_hot(node: ast.AST) -> bool:
    """`F.one_hot(groups, n).T @ x`, or the same by `groups[None] == torch.arange(n)[:, None]`."""
    of = next(iter(_factors_of(node)), None)
    while of is not None and name_of(of) in _VIEWS:
        of = operands_of(of)[0]  # type: ignore[arg-type]
    if isinstance(of, ast.Attribute) and of.attr in _TRANSPOSED:
        return _is_one_hot(of.value)
    if isinstance(of, ast.Call) and name_of(of) in _TRANSPOSING:
        return _is_one_hot(operands_of(of)[0])
    if not (isinstance(of, ast.Compare) and len(of.ops) == 1 and isinstance(of.ops[0], ast.Eq)):
        return False
    return _are_pairs(of.left, of.comparators[0]) and next(calls_in(of, "arange"), None) is not None


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


PRODUCT_FORMS: Mapping[ComposedForm, Callable[[ast.AST], bool]] = {
    "distances": _is_distance,
    "absolute distances": _is_absolute_distance,
    "cosine similarities": _is_similarity,
    "layer of cosine similarities": _is_similarity_layer,
    "sums of products": _is_sum_of_products,
    "convolution by columns": _is_convolution,
    "product with a diagonal matrix": _is_diagonal_product,
    "product with one-hot rows": _is_one_hot_product,
    "sums by one-hot rows": _is_sum_by_one_hot,
    "layer on one-hot rows": _is_one_hot_layer,
}
