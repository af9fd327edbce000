"""Decides by the source whether a line that runs for each item of a data set computes the same for all: a filter bank, a table of words."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import (
    LOOPS,
    Entry,
    Module,
    Scope,
    changed_by,
    loop_scope,
)
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    FUNCTIONS,
    bindings,
    class_around,
    covers,
    guarded,
    names,
    parameters,
    plain_names,
    statement_at,
)
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.probes.documents.event_documents import SampleMaking

_BLOCKS = (*LOOPS, ast.If, ast.With, ast.Try)
# Methods that a library calls on one object for all items. Others may run on the item itself.
_OF_ALL_ITEMS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "apply", "forward", "transform")


def same_for_all_items(sources: Sequence[Source], entries: Sequence[Entry]) -> Entry | None:
    """Where the work of a stack's innermost line could be done once for all items, as far out as possible; None if it could not.

    `entries`: the user's functions in the stack, outermost first.
    """
    functions = [function_at(sources, entry.file, entry.line) for entry in entries]
    if not entries or any(not isinstance(function, FUNCTIONS) for function in functions):
        return None
    # what goes through a generator calls it once, and gets another item each time
    first = max((n for n, function in enumerate(functions) if _is_generator(function)), default=0)
    scope = _of_items(Module.of(sources, entries[first].file), functions[first], entries[first].line)
    found: tuple[Entry, Scope] | None = None
    for n in range(first, len(entries)):
        entry, function = entries[n], functions[n]
        if scope is None or function is None:
            return None
        if function is not scope.function:
            module = Module.of(sources, entry.file)
            calls = scope.calls_of(entries[n - 1].line, entry, class_around(module.tree, function))
            inside = scope.entered(module, function, calls, entry.entered)
            found = found or ((entries[n - 1], scope) if scope.gives_same(calls, inside) else None)
            scope = inside
        if _is_remembered(function, entry.line):
            return None
    if scope is None or not scope.same_at(entries[-1].line):
        return None
    place, around = found or (entries[-1], scope)
    statement = statement_at(around.function, place.line)
    # the head of a block computes next to nothing, and a sample that finds it may belong to the block
    head = found is None and isinstance(statement, _BLOCKS)
    return None if head or _changes_later(around, place.line) else place


def repeated_for_items(sources: tuple[Source, ...], making: SampleMaking) -> tuple[str, Entry] | None:
    """The name of what the stack of a process that makes items repeats for each, and where it could be done once; None for nothing."""
    user = making.get("user")
    frames = [user, *making.get("callers", ())] if user else []
    entries = tuple(Entry(f["file"], f["line"], f["function"], "called") for f in reversed(frames))
    found = _found(sources, entries)
    if found is None:
        return None
    inside = entries[min(entries.index(found) + 1, len(entries) - 1)]
    return inside.function.removesuffix(".__init__"), found


# A live job is analysed each second, with the same stacks.
@functools.lru_cache(maxsize=4096)
def _found(sources: tuple[Source, ...], entries: tuple[Entry, ...]) -> Entry | None:
    try:
        return same_for_all_items(sources, entries)
    except RecursionError:  # functions that call each other in their arguments: nothing is decided
        return None


def _is_generator(function: ast.AST | None) -> bool:
    return function is not None and any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in guarded(function))


def _of_items(module: Module, function: ast.AST | None, line: int) -> Scope | None:
    """The scope of the function that makes an item, or of the loop in which a generator makes them; None where it makes none."""
    assert function is not None
    if _is_generator(function):
        around = [n for n in guarded(function) if isinstance(n, LOOPS) and covers(n, line) and n.body[0].lineno <= line]
        return loop_scope(module, function, around[0], rounds="items") if around else None
    name = getattr(function, "name", "")
    of_all = name in _OF_ALL_ITEMS or "collate" in name
    known = {b.name: True for b in bindings(function)} | dict.fromkeys(parameters(function), False) | {"self": of_all}
    return Scope(module, function, known, rounds="items").settled(function)


def _is_remembered(function: ast.AST, line: int) -> bool:
    """True if a condition around a line asks for what its block sets: `if self.window is None: self.window = make()`."""
    return any(
        isinstance(node, ast.If) and covers(node, line) and _set_in(node) & set(_parts(node.test))
        for node in guarded(function)
    )


def _set_in(block: ast.If) -> set[str]:
    targets = (t for node in ast.walk(block) if isinstance(node, ast.Assign) for t in node.targets)
    return {ast.unparse(t.value if isinstance(t, ast.Subscript) else t) for t in targets}


def _parts(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, (ast.Name, ast.Attribute)):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            yield f"{ast.unparse(node.args[0])}.{node.args[1].value!s}"  # hasattr(self, "window")


def _changes_later(scope: Scope, line: int) -> bool:
    """True if what a line makes is filled with something of the item: each needs one of its own."""
    statement = statement_at(scope.function, line)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    made = {name for target in targets if isinstance(target, ast.expr) for name in plain_names(target)}
    changed = {
        b.name for b in bindings(scope.function) if not b.new and not all(map(scope.same, b.of)) and b.name in made
    }
    given = (
        call
        for call in guarded(scope.function)
        if isinstance(call, ast.Call) and made & names(call) and not scope.same_arguments(call)
    )
    return bool(changed) or any(made & changed_by(scope.module, scope.function, call, rounds="items") for call in given)
