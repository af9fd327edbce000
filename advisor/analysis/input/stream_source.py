"""Finds, in the source of an iterable data set, that it processes samples before it throws away those of other ranks or workers."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from rn50_advisor.advisor.analysis.stacks.source.loop_source import names_in, parsed
from rn50_advisor.advisor.analysis.stacks.source.written_names import FUNCTIONS, last_name
from rn50_advisor.advisor.model.analysis import StreamSplit
from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts
from rn50_advisor.advisor.model.recording import Recording, Source

# What the number of parts is called.
_OF_RANKS = re.compile(r"world|replicas|ranks|nodes|n_?proc|processes|shards", re.IGNORECASE)
_OF_WORKERS = re.compile(r"workers", re.IGNORECASE)
_SLICE = 4  # arguments of `islice`: the samples, where it starts and stops, and N
_DEPTH_MAX = 4  # generators that call each other


def stream_splits(recording: Recording, loaders: Iterable[LoaderFacts]) -> dict[str, StreamSplit]:
    """By the class of the loaders' data sets."""
    names = dict.fromkeys(str(loader.dataset.get("class", "")) for loader in loaders)
    found = ((name, _split(recording.sources, name.rpartition(".")[2])) for name in names if name)
    return {name: split for name, split in found if split is not None}


def _split(sources: Sequence[Source], name: str) -> StreamSplit | None:
    for source in sources:
        tree = None if source.edited else parsed(source.text)
        found = None if tree is None else _split_in(tree, name)
        if found is not None:
            line, of_ranks, of_workers = found
            return StreamSplit(source.path, line, of_ranks, of_workers)
    return None


@functools.lru_cache(maxsize=64)  # a live job is analysed each second, with the same files
def _split_in(tree: ast.Module, name: str) -> tuple[int, bool, bool] | None:
    """(line, by ranks, by workers) of the division in this class."""
    for cls in ast.walk(tree):
        if not (isinstance(cls, ast.ClassDef) and cls.name == name):
            continue
        reader = _Generators(tree, cls)
        for function in (node for node in cls.body if isinstance(node, FUNCTIONS)):
            for line, parts in _late_divisions(function, reader):
                text = ast.unparse(parts)
                of_ranks, of_workers = bool(_OF_RANKS.search(text)), bool(_OF_WORKERS.search(text))
                if of_ranks or of_workers:
                    return line, of_ranks, of_workers
    return None


class _Generators:
    """Which calls of a class make processed samples, rather than give lines or places."""

    def __init__(self, tree: ast.Module, cls: ast.ClassDef) -> None:
        self._known = {
            node.name: node for body in (tree.body, cls.body) for node in body if isinstance(node, FUNCTIONS)
        }

    def processes(self, iterable: ast.AST, depth: int = _DEPTH_MAX) -> bool:
        """True if it calls a generator that yields what a call returns, by itself or through another one."""
        if isinstance(iterable, ast.GeneratorExp):
            return isinstance(iterable.elt, ast.Call)
        if not isinstance(iterable, ast.Call) or not depth:
            return False
        name = last_name(iterable.func)
        if name == "map":
            return True
        if name == "enumerate" and iterable.args:
            return self.processes(iterable.args[0], depth)
        function = self._known.get(name)
        return function is not None and any(
            self._yields_processed(function, node, depth) for node in ast.walk(function)
        )

    def _yields_processed(self, function: ast.AST, node: ast.AST, depth: int) -> bool:
        if isinstance(node, ast.YieldFrom):
            return self.processes(node.value, depth - 1)
        if not isinstance(node, ast.Yield) or node.value is None:
            return False
        if any(isinstance(each, ast.Call) for each in ast.walk(node.value)):
            return True
        return any(
            isinstance(each, ast.Assign)
            and isinstance(each.value, ast.Call)
            and set().union(*map(names_in, each.targets)) & names_in(node.value or each)
            for each in ast.walk(function)
        )


def _late_divisions(function: ast.AST, generators: _Generators) -> Iterator[tuple[int, ast.expr]]:
    """(line, number of parts) where samples that are already processed are divided: one in N is yielded, as it is."""
    for node in ast.walk(function):
        if isinstance(node, (ast.YieldFrom, ast.Return)) and node.value is not None:
            parts = _sliced(node.value, generators)
            if parts is not None:
                yield node.lineno, parts
        elif isinstance(node, ast.For) and _yields_as_it_is(node):
            parts = _sliced(node.iter, generators)
            if parts is not None:
                yield node.lineno, parts
            processed, of_sample = generators.processes(node.iter), _names_of_sample(node)
            for place, statement in enumerate(node.body):
                parts = _parts_of(statement)
                before, after = node.body[:place], node.body[place + 1 :]
                computed = processed or any(_computes(each, of_sample) for each in before)
                if parts is not None and computed and not any(_computes(each, of_sample) for each in after):
                    yield statement.lineno, parts


def _sliced(value: ast.expr, generators: _Generators) -> ast.expr | None:
    """N of `islice(processed, k, None, N)`."""
    if not (isinstance(value, ast.Call) and last_name(value.func) == "islice" and len(value.args) == _SLICE):
        return None
    return value.args[3] if generators.processes(value.args[0]) else None


def _yields_as_it_is(loop: ast.For) -> bool:
    yields = [node for node in ast.walk(loop) if isinstance(node, ast.Yield)]
    return bool(yields) and not any(isinstance(each, ast.Call) for node in yields for each in ast.walk(node))


def _parts_of(statement: ast.stmt) -> ast.expr | None:
    """N, if the statement goes on with one sample in N: `if i % N == k: yield x`, or `if i % N != k: continue`."""
    if not (isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare)):
        return None
    takes = any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Continue)) for node in ast.walk(statement))
    sides = (statement.test.left, *statement.test.comparators)
    divided = (side.right for side in sides if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mod))
    # `% n == 0` is what comes every n times
    return next(divided, None) if takes and not any(isinstance(side, ast.Constant) for side in sides) else None


def _names_of_sample(loop: ast.For) -> set[str]:
    """The loop's own names, and those assigned of them."""
    names = names_in(loop.target)
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and names_in(statement.value) & names:
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return names


def _computes(statement: ast.stmt, of_sample: Set[str]) -> bool:
    """True if it assigns what a call made of the sample: neither `line = line.strip()`, nor a place drawn for it in a buffer."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(value, ast.Call) and any(names_in(each) & of_sample for each in value.args)
