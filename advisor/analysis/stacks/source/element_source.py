"""Finds Python loops that handle the elements of tensors or arrays one by one, in the source of the functions that stack samples found."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence, Set

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.model.recording import Source

_SCALARS = ("int", "float", "bool")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def element_loop(sources: Sequence[Source], file: str, line: int, beside: Set[int] = frozenset()) -> int | None:
    """The line of the outermost such loop around a line in its own function; None if there is none or its source is not known.

    `beside`: lines that must not be in the loop, such as that of the backward pass.
    """
    function = function_at(sources, file, line)
    loops = () if function is None else _loops(function)
    around = (loop for loop in loops if loop.body[0].lineno <= line <= (loop.end_lineno or 0))
    return min(
        (
            loop.lineno
            for loop in around
            if not any(loop.lineno <= other <= (loop.end_lineno or 0) for other in beside) and _takes_elements(loop)
        ),
        default=None,
    )


def _loops(function: ast.AST) -> Iterator[ast.For | ast.While]:
    return (node for node in _inside(function) if isinstance(node, (ast.For, ast.While)))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below this one, without functions and classes that are defined there."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _inside(child)


@functools.lru_cache(maxsize=256)
def _takes_elements(loop: ast.For | ast.While) -> bool:
    """True if the loop makes Python numbers of elements, or takes or sets single elements by more than one index."""
    nodes = [loop, *_inside(loop)]
    targets = {
        name.id
        for node in nodes
        if isinstance(node, ast.For)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    }
    return any(
        _is_number_of_an_element(node, targets) if isinstance(node, ast.Call) else _is_element(node) for node in nodes
    )


def _is_number_of_an_element(call: ast.Call, targets: Set[str]) -> bool:
    """`targets`: names of what the loops go through. The number of a loss or of a norm is none of an element."""
    if isinstance(call.func, ast.Attribute):
        of = call.func.value
        element = isinstance(of, ast.Subscript) or (isinstance(of, ast.Name) and of.id in targets)
        return element and call.func.attr == "item" and not call.args
    converts = isinstance(call.func, ast.Name) and call.func.id in _SCALARS and len(call.args) == 1
    return converts and any(isinstance(node, ast.Subscript) for node in ast.walk(call.args[0]))


def _is_element(node: ast.AST) -> bool:
    """True for `x[i, j]` and `x[i][j]`, where nothing is a slice and something is not written out."""
    if not isinstance(node, ast.Subscript):
        return False
    if isinstance(node.slice, ast.Tuple):
        indices = node.slice.elts
    elif isinstance(node.value, ast.Subscript):
        indices = [node.value.slice, node.slice]
    else:
        return False
    slices = (ast.Slice, ast.Starred, ast.Tuple)
    whole = any(isinstance(index, slices) or _is_none_or_ellipsis(index) for index in indices)
    named = any(
        isinstance(index, ast.Constant) and isinstance(index.value, str) for index in indices
    )  # of a dictionary
    return (
        len(indices) > 1 and not whole and not named and not all(isinstance(index, ast.Constant) for index in indices)
    )


def _is_none_or_ellipsis(index: ast.expr) -> bool:
    return isinstance(index, ast.Constant) and index.value in (None, ...)
