"""Finds expressions that take parts of tensors in a loop, or rows by a tensor of indices, in the source of sampled functions."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence, Set

from rn50_advisor.advisor.analysis.stacks.source.loop_source import COMPREHENSIONS, covers, function_at, names_in
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.model.recording import Source

_LOOPS = (ast.For, ast.While, *COMPREHENSIONS)
_PARTS = ("select", "narrow")
_REPEATS = frozenset(
    (
        "cat",
        "concat",
        "concatenate",
        "expand",
        "expand_as",
        "gather",
        "index_select",
        "repeat",
        "repeat_interleave",
        "tile",
    )
)
_MASK = re.compile(r"mask|valid|keep|[<>=!~&|]", re.IGNORECASE)
# Of what an index is computed from a loop's counter.
_OF_INDICES = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Name, ast.Constant, ast.expr_context, ast.Call)


def part_line(sources: Sequence[Source], file: str, line: int) -> int | None:
    """The line that takes or sets a part of a tensor by the counter of a loop which has `line` in its body; None if there is none.

    `x[:, t]` comes before `x[t]`, which may take an element of a list.
    """
    function = function_at(sources, file, line)
    return None if function is None else _part_around(function, line)


def takes_rows(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if an expression on the line takes elements by one index that may be a tensor of numbers: `x[idx]`, `x[:, self.order]`.

    Not by a mask or by several tensors: other operations gain little there.
    """
    function = function_at(sources, file, line)
    return function is not None and _takes_rows(function, line)


def takes_repeated_rows(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if a call on the line gets tensors that it, or a line before in the same function, joins, repeats or takes by indices."""
    function = function_at(sources, file, line)
    return function is not None and _takes_repeated_rows(function, line)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _takes_repeated_rows(function: ast.AST, line: int) -> bool:
    made = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno < line and any(map(_repeats, ast.walk(node.value)))
        for target in node.targets
        for name in names_in(target)
    }
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and covers(node, line)]
    given = [part for call in calls for each in call.args for part in ast.walk(each)]
    return any(_repeats(part) or (isinstance(part, ast.Name) and part.id in made) for part in given)


def _repeats(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node) in _REPEATS


# Cached, too.
@functools.lru_cache(maxsize=1024)
def _part_around(function: ast.AST, line: int) -> int | None:
    loops = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and _has_in_body(node, line)]
    for loop in sorted(loops, key=lambda loop: (loop.lineno, loop.col_offset), reverse=True):
        found = _part_in(loop)
        if found is not None:
            return found
    return None


@functools.lru_cache(maxsize=1024)
def _takes_rows(function: ast.AST, line: int) -> bool:
    counters = set().union(*(_counters(loop) for loop in ast.walk(function) if isinstance(loop, _LOOPS)))
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and covers(node, line)
        and sum(_may_be_a_tensor(index, counters) for index in _indices(node)) == 1
        and not any(_is_mask(index) for index in _indices(node))
        for node in ast.walk(function)
    )


def _has_in_body(loop: ast.AST, line: int) -> bool:
    first = loop.body[0].lineno if isinstance(loop, (ast.For, ast.While)) else loop.lineno  # type: ignore[attr-defined]
    return first <= line <= (loop.end_lineno or 0)  # type: ignore[attr-defined]


def _part_in(loop: ast.AST) -> int | None:
    counters = set().union(*(_counters(inner) for inner in ast.walk(loop) if isinstance(inner, _LOOPS)))
    called = {node.func for node in ast.walk(loop) if isinstance(node, ast.Call)}
    found = [
        (0 if isinstance(node, ast.Call) or isinstance(node.slice, (ast.Tuple, ast.Slice)) else 1, node.lineno)
        for node in ast.walk(loop)
        if node not in called and isinstance(node, (ast.Subscript, ast.Call)) and _is_part(node, counters)
    ]
    return min(found)[1] if found else None


def _is_part(node: ast.Subscript | ast.Call, counters: Set[str]) -> bool:
    if isinstance(node, ast.Subscript):
        return any(names_in(index) & counters for index in _indices(node))
    method = isinstance(node.func, ast.Attribute) and node.func.attr in _PARTS
    return method and any(names_in(argument) & counters for argument in node.args)


def _counters(loop: ast.AST) -> set[str]:
    """Names of what a loop counts or goes through, and those that its body computes of them by arithmetic."""
    if isinstance(loop, ast.While):
        return {
            node.target.id
            for node in ast.walk(loop)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
    targets = [loop.target] if isinstance(loop, ast.For) else [each.target for each in getattr(loop, "generators", ())]
    found = set[str]().union(*map(names_in, targets))
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and names_in(node.value) & found and _counts(node.value):
            found |= set[str]().union(*map(names_in, node.targets))
    return found


def _counts(value: ast.expr) -> bool:
    return all(isinstance(part, _OF_INDICES) for part in ast.walk(value))


def _indices(node: ast.Subscript) -> Iterator[ast.expr]:
    yield from node.slice.elts if isinstance(node.slice, ast.Tuple) else (node.slice,)


def _may_be_a_tensor(index: ast.expr, counters: Set[str]) -> bool:
    if isinstance(index, (ast.Constant, ast.Slice, ast.UnaryOp, ast.JoinedStr, ast.Starred)):
        return False
    return not names_in(index) <= counters if isinstance(index, (ast.Name, ast.BinOp)) else True


def _is_mask(index: ast.expr) -> bool:
    return _MASK.search(ast.unparse(index)) is not None
