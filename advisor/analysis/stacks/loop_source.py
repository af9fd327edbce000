"""What the source of a training function shows that its stacks do not: which lines run in every step, and what the loss is computed of."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence, Set

from rn50_advisor.advisor.model.recording import Source

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.Match)


def function_at(sources: Sequence[Source], file: str, line: int) -> ast.AST | None:
    """The innermost function around a line, or the module; None if its source was not kept, has changed or cannot be parsed."""
    source = next((source for source in sources if source.path == file and not source.edited), None)
    tree = None if source is None else _parsed(source.text)
    if tree is None:
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) and _covers(node, line)]
    return max(found, key=lambda node: node.lineno, default=tree)


def loops_around(sources: Sequence[Source], file: str, lines: Set[int]) -> bool:
    """True if one of these lines is inside a loop of its own function."""
    function = function_at(sources, file, max(lines))
    return function is not None and any(_loop(function, line) is not None for line in lines)


def in_every_round(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> bool:
    """True if the innermost loop around a line that leads to the backward pass runs this other line in every round."""
    function = function_at(sources, file, line)
    loops = [] if function is None else [_loop(function, backward) for backward in backwards]
    return any(loop is not None and _covers(loop, line) and not _seldom(loop, line, backwards) for loop in loops)


def is_trained_on(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> bool:
    """True if lines that lead to the backward pass use what this line assigns, or what is computed of that, in the same function."""
    function = function_at(sources, file, line)
    if function is None:
        return False
    flows = [(_names(target), _names(value), value.lineno, value.end_lineno or 0) for target, value in _flows(function)]
    used: set[str] = set()
    for targets, values, first, last in flows:
        if first <= line <= last:
            used |= targets - values  # a model that is passed in and returned is no data
    size = -1
    while used and size != len(used):
        size = len(used)
        for targets, values, *_ in flows:
            if values & used:
                used |= targets
    return any(
        used & _names(node)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and not _covers(node, line) and any(_covers(node, at) for at in backwards)
    )


def _flows(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each assignment and each loop."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield node.target, node.iter


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _seldom(loop: ast.stmt, line: int, backwards: Set[int]) -> bool:
    """True if a branch in the loop has the line but no backward pass."""
    return any(
        isinstance(node, _BRANCHES) and _covers(node, line) and not any(_covers(node, other) for other in backwards)
        for node in ast.walk(loop)
    )


def _loop(function: ast.AST, line: int) -> ast.stmt | None:
    """The innermost loop of this function whose body has the line."""
    found = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and _covers(node, line)]
    return max((loop for loop in found if loop.body[0].lineno <= line), key=lambda loop: loop.lineno, default=None)


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
