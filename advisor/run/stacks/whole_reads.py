"""Finds the call with which a thread reads a whole array to make one item that is a part of it.

An `.npz` file unpacks an array each time that it is asked for, and `dataset[:]` reads a whole data set of HDF5 or Hugging Face. What each
item reads of its own is none of these.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.edits.constant_values import Values
from rn50_advisor.advisor.edits.kept_objects import kept_object
from rn50_advisor.advisor.edits.names import parameters, stored
from rn50_advisor.advisor.run.stacks.repeated_calls import Running, called, given_by_caller, running_at, values_of
from rn50_advisor.advisor.run.stacks.shard_reads import READS_OR_OPENS, opening_of, shard_read
from rn50_advisor.probes.documents.code_places import WholeRead
from rn50_advisor.probes.host.stacks.process_stacks import Frame, is_user_file

_ARCHIVE = re.compile(r"/numpy/lib/\w*npyio")
_DATASETS = {
    "h5py": re.compile(r"/h5py/_hl/dataset\.py$"),
    "zarr": re.compile(r"/zarr/core(/array)?\.py$"),
    "Hugging Face": re.compile(r"/datasets/arrow_dataset\.py$"),
}
_DECORATORS = ("wrapper", "inner", "_inner")  # functions around a library's own: polars.read_parquet has one
_CALLERS_MAX = 8  # a function that calls itself may have a thousand
_WALKS = ("items", "values")
_TURNS = (ast.For, ast.AsyncFor, ast.comprehension)


@functools.lru_cache(maxsize=256)
def whole_read(frames: tuple[Frame, ...]) -> WholeRead | None:
    """The read at the user's innermost line; None if the code does not show one.

    `frames`: innermost first, from the library's functions that this line calls down to the function that the fetcher calls.
    """
    depth = next((n for n, frame in enumerate(frames) if is_user_file(frame.file)), None)
    running = None if depth is None else running_at(frames[depth])
    if depth is None or running is None:
        return None
    library, callers = frames[:depth], frames[depth + 1 : depth + 1 + _CALLERS_MAX]
    if any(_ARCHIVE.search(f.file) and _own(f) in ("__getitem__", "__getattribute__") for f in library):
        if _unpacks_the_same(running, callers):
            return {"kind": "array", "call": "numpy.load(...)[...]"}
        opened = (opening_of(running, base) for base, _ in _chains(running))
        return next((found for call in opened if (found := shard_read(running, callers, call))), None)
    for name, files in _DATASETS.items():
        ways = {_own(f) for f in library if files.search(f.file)} & {"__getitem__", "__array__"}
        if ways:
            read = _reads_all(running, callers, as_array="__array__" in ways)
            return {"kind": "dataset", "call": f"{name} dataset[:]"} if read else None
    inner = next((f.function for f in reversed(library) if _own(f) not in _DECORATORS), None)
    return None if library and inner is None else shard_read(running, callers, called(running, inner, READS_OR_OPENS))


def _own(frame: Frame) -> str:
    return frame.function.rpartition(".")[2]


def _unpacks_the_same(running: Running, callers: Sequence[Frame]) -> bool:
    """True if the line asks an archive for the same array each time, or for one of which an item takes a part."""
    values = values_of(running, callers)
    walked = (
        node.func.value
        for node in _at_line(running)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WALKS
    )
    if any(_kept(running, callers, base) == [] for base in walked):
        return True
    chains = [*_chains(running)]
    named = [each for each in chains if any(map(_is_text, each[1]))] or [each for each in chains if len(each[1]) > 1]
    return bool(chains) and all(_is_whole(running, callers, values, *each) for each in named or chains)


def _is_whole(
    running: Running, callers: Sequence[Frame], values: Values, base: ast.expr, indices: Sequence[ast.expr]
) -> bool:
    """True for `archive["images"][row]` of a kept archive, if the array is the same for each item or one of several."""
    before = _kept(running, callers, base)
    if before is None:
        return False
    chain = [*before, *indices]
    texts = [n for n, index in enumerate(chain) if _is_text(index)]
    at = texts[0] if texts else max(0, len(chain) - 2)
    if all(_is_same(running, values, index) for index in chain[: at + 1]):
        return True
    later = chain[at + 1 : at + 2] or _indices_later(running)
    return any(_is_of_item(values, index) for index in later)


def _reads_all(running: Running, callers: Sequence[Frame], *, as_array: bool) -> bool:
    """True if the line takes all of a data set that is the same for each item, by `[:]` or `as_array`."""
    values = values_of(running, callers)
    full = [node.value for node in _at_line(running) if isinstance(node, ast.Subscript) and _is_full(node.slice)]
    made = [call.args[0] for call in _at_line(running) if isinstance(call, ast.Call) and len(call.args) == 1]
    for node in made if as_array else full:
        taken = _kept(running, callers, node)
        if taken is not None and all(_is_same(running, values, index) for index in taken):
            return True
    return False


def _is_full(index: ast.expr) -> bool:
    """True for `[:]`, `[...]` and `[()]`."""
    if isinstance(index, ast.Slice):
        return index.lower is None and index.upper is None and index.step is None
    empty = isinstance(index, ast.Tuple) and not index.elts
    return empty or (isinstance(index, ast.Constant) and index.value is Ellipsis)


def _kept(running: Running, callers: Sequence[Frame], node: ast.expr) -> list[ast.expr] | None:
    """The indices of `kept_object`, also for what the callers hand over."""
    found = kept_object(values_of(running, callers), node)
    if found is None and isinstance(node, ast.Name) and node.id in parameters(running.function):
        caller, given = given_by_caller(running, callers)
        found = _kept(caller, callers[1:], given[node.id]) if caller is not None and node.id in given else None
    return found


def _step(node: ast.AST | None) -> tuple[ast.expr, ast.expr] | None:
    """What a node takes something out of, and the index: `x[index]`, `x.get(index)` and an archive's `x.f.index`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "f":
        return node.value.value, ast.Constant(node.attr)
    return None


def _chains(running: Running) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yields (object, indices) for what the line takes out of objects: `self.archives[at]["images"][row]`, without its indices."""
    within = set[int]()
    for node in _at_line(running):  # the outer ones first
        if not isinstance(node, ast.expr) or id(node) in within or _step(node) is None:
            continue
        base, indices = node, list[ast.expr]()
        while (step := _step(base)) is not None:
            within.add(id(base))
            base, index = step
            within |= {id(each) for each in ast.walk(index)}
            indices.insert(0, index)
        yield base, indices


def _indices_later(running: Running) -> list[ast.expr]:
    """Indices that the function takes of the name to which the line assigns."""
    names = {
        name.id
        for node in _at_line(running)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in stored(target)
        if isinstance(name, ast.Name)
    }
    return [
        node.slice
        for node in ast.walk(running.function)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names
    ]


def _at_line(running: Running) -> Iterator[ast.AST]:
    line = running.frame.line
    for node in ast.walk(running.function):
        if isinstance(node, (ast.expr, ast.Assign)) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


def _is_text(index: ast.expr) -> bool:
    return isinstance(index, ast.JoinedStr) or (isinstance(index, ast.Constant) and isinstance(index.value, str))


def _is_same(running: Running, values: Values, index: ast.expr) -> bool:
    """True for an index that is the same for each item, or that goes through the same names for each."""
    if values.same(index):
        return True
    turns = [
        node.iter
        for node in ast.walk(running.function)
        if isinstance(node, _TURNS) and isinstance(index, ast.Name) and index.id in _names(node.target)
    ]
    of_item = {*parameters(running.function)} - {"self", "cls", *values.constant}
    return bool(turns) and not any(_names(turn) & of_item for turn in turns)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_of_item(values: Values, index: ast.expr) -> bool:
    """True for an index that takes one row, another one for each item."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    return not isinstance(first, (ast.Slice, ast.Constant)) and not values.same(first)
