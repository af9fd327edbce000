"""Decides by the source whether a line computes the same in every step: from nothing of the batch, the parameters, random numbers or
earlier steps. Or in every round of a loop within a forward pass, in which the parameters are the same.

What cannot be decided counts as different in every step. The shape, type and device of a tensor count as the same.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import LOOPS, Entry, Module, Scope, loop_scope
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    class_around,
    computed,
    covers,
    guarded,
    names,
    statement_at,
)
from rn50_advisor.advisor.model.recording import Source


def repeated_work(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Entry | None:
    """Where the work of a stack's innermost line could be done once for all steps, as far out as possible; None if it could not.

    `entries`: the stack, outermost first. `backwards`: lines that lead to the backward pass, by file and function.
    """
    for n in reversed(range(len(entries))):
        entry = entries[n]
        function, lines = function_at(sources, entry.file, entry.line), backwards.get((entry.file, entry.function))
        loop = None if function is None or not lines else _training_loop(function, entry.line, lines)
        if function is not None and loop is not None:
            return _repeated(sources, entries[n:], loop_scope(Module.of(sources, entry.file), function, loop))
    return None


def repeated_in_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Entry | None:
    """Where the work of a stack's innermost line could be done once before a loop that is no training loop; None if it could not.

    The arguments are those of `repeated_work`.
    """
    for n, function, loop in _inner_loops(sources, entries, backwards):
        scope = loop_scope(Module.of(sources, entries[n].file), function, loop, rounds="passes")
        found = _repeated(sources, entries[n:], scope) if scope.always_at(entries[n].line, loop) else None
        if found is not None:
            return found
    return None


def called_in_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> bool:
    """True if a stack is in a loop that is no training loop, and that calls the same in each round: not each of several layers."""
    for n, function, loop in _inner_loops(sources, entries, backwards):
        turns = names(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
        statement = statement_at(function, entries[n].line)
        parts = [] if statement is None else computed(statement)
        called = [node.func for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
        if not any(names(each) & turns for each in called):
            return True
    return False


def _inner_loops(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> Iterator[tuple[int, ast.AST, ast.stmt]]:
    """Yields (number of the entry, its function, loop around its line) for loops that lead to no backward pass, the outermost first.

    Without those of generators: what takes from them may train in between.
    """
    for n, entry in enumerate(entries):
        function = function_at(sources, entry.file, entry.line)
        if function is None:
            continue
        lines = backwards.get((entry.file, entry.function), ())
        around = (
            []
            if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in guarded(function))
            else _loops_at(function, entry.line)
        )
        yield from ((n, function, loop) for loop in around if not any(covers(loop, line) for line in lines))


def _repeated(sources: Sequence[Source], entries: Sequence[Entry], scope: Scope) -> Entry | None:
    place: Entry | None = None
    for before, entry in itertools.pairwise(entries):
        function = function_at(sources, entry.file, entry.line)
        if function is None:
            return None
        if function is not scope.function:  # a comprehension is a frame of its own in the same function
            module = Module.of(sources, entry.file)
            calls = scope.calls_of(before.line, entry, class_around(module.tree, function))
            inside = scope.entered(module, function, calls, entry.entered)
            place = place or (before if scope.gives_same(calls, inside) else None)
            scope = inside
            if scope.rounds == "passes" and not scope.always_at(entry.line):
                return None
    return (place or entries[-1]) if scope.same_at(entries[-1].line) else None


def _loops_at(function: ast.AST, line: int) -> list[ast.stmt]:
    """Loops with this line in their body, the outermost first."""
    return [n for n in guarded(function) if isinstance(n, LOOPS) and covers(n, line) and n.body[0].lineno <= line]


def _training_loop(function: ast.AST, line: int, backwards: Set[int]) -> ast.stmt | None:
    """The innermost loop around a line and a backward pass; None for the line that heads it, which takes another batch each time."""
    trains = (
        n for n in guarded(function) if isinstance(n, LOOPS) and any(covers(n, backward) for backward in backwards)
    )
    innermost = max((loop for loop in trains if covers(loop, line)), key=lambda loop: loop.lineno, default=None)
    return None if innermost is None or line < innermost.body[0].lineno else innermost
