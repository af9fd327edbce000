"""Decides by the source whether the iterations of a loop depend on each other, or only on what the one before has computed, and reads which
operations of torch its lines call.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.stacks.source.loop_source import COMPREHENSIONS, function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry
from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    FUNCTIONS,
    covers,
    guarded,
    is_in_place,
    last_name,
    names,
    statement_at,
)
from rn50_advisor.advisor.model.analysis import IteratesOver
from rn50_advisor.advisor.model.recording import Source

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_PARAMETERS = re.compile(r"param|\bbuffers\(|\bstate_dict\(", re.IGNORECASE)
# Names in autograd's graph (before `Backward0`), without capitals, of what is written as an operator.
_OPERATORS: Mapping[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("add",),
    ast.Sub: ("sub", "rsub"),
    ast.Mult: ("mul",),
    ast.Div: ("div", "reciprocal"),
    ast.Pow: ("pow",),
    ast.MatMult: ("mm", "bmm", "mv", "dot"),
    ast.USub: ("neg",),
}
_PARTS = ("select", "slice", "index")
_COUNTING = frozenset(
    ("int", "len", "range", "reversed", "tqdm", "trange")
)  # what is called in the head of a loop that only counts
# Names of calls that autograd's graph has under others.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "crossentropy": ("nllloss", "nllloss2d"),
    "matmul": ("mm", "bmm", "mv", "dot"),
    "linear": ("addmm", "mm", "linear", "mkldnnlinear"),
    "conv1d": ("convolution",),
    "conv2d": ("convolution",),
    "norm": ("linalgvectornorm", "norm"),
    "dropout": ("nativedropout", "mul"),
    "layernorm": ("nativelayernorm",),
    "batchnorm": ("nativebatchnorm",),
    "interpolate": ("upsamplenearest2d", "upsamplebilinear2d", "upsamplelinear1d"),
    "concat": ("cat",),
    "relu": ("relu", "clampmin"),
}


_Loop = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True)
class FoundLoop:
    file: str
    line: int
    function: str
    over: IteratesOver
    grows: bool = False  # each iteration goes through all of the ones before: `decoder(words[:, :t])`


def independent_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> FoundLoop | None:
    """The outermost loop or comprehension around a stack whose iterations do not depend on each other; None if there is none.

    `entries`: the stack, outermost first. `backwards`: lines that lead to the backward pass, by file and function; a loop with one of
    them trains. A loop of a generator is none: what takes from it may train in between.
    """
    for n, entry in enumerate(entries):
        function = function_at(sources, entry.file, entry.line)
        if function is None:
            continue
        lines = backwards.get((entry.file, entry.function), frozenset())
        loop = _loop_in(function, entry.line, frozenset(lines))
        if loop is not None and not any(_keeps(sources, inner) for inner in entries[n + 1 :]):
            own = entry.function.partition(".<locals>.<")[0]  # without the frame of a comprehension
            return FoundLoop(entry.file, loop.lineno, own, _over(loop), _takes_prefixes(loop))
    return None


def chained_loop(
    sources: Sequence[Source], entries: Sequence[Entry], backwards: Mapping[tuple[str, str], Set[int]]
) -> tuple[str, int, str] | None:
    """The outermost loop around a stack (file, line, function) if each of its loops goes on from what its last iteration has computed and
    takes nothing else that differs: sampling, solvers, one layer after another. None if there is no loop, or another one.
    """
    found = None
    for entry in entries:
        function = function_at(sources, entry.file, entry.line)
        lines = backwards.get((entry.file, entry.function), frozenset())
        for loop in () if function is None else _loops_at(function, entry.line):
            if any(covers(loop, each) for each in lines):
                continue
            if isinstance(loop, COMPREHENSIONS) or not _is_chained(loop):
                return None
            found = found or (entry.file, loop.lineno, entry.function.partition(".<locals>.<")[0])
    return found


def _loops_at(function: ast.AST, line: int) -> list[_Loop]:
    """The loops with this line in their bodies, and comprehensions on it, outermost first."""
    loops = [node for node in guarded(function) if isinstance(node, (ast.For, ast.While, *COMPREHENSIONS))]
    return [
        loop
        for loop in loops
        if covers(loop, line) and (isinstance(loop, COMPREHENSIONS) or loop.body[0].lineno <= line)
    ]


@functools.lru_cache(maxsize=1024)
def _is_chained(loop: ast.For | ast.While) -> bool:
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    iteration, calls = _Iteration(loop), [node for node in inside if isinstance(node, ast.Call)]
    gone_on = {name for name in iteration.assigned | iteration.gathered if iteration.read[name]}
    counters = {
        name
        for node in inside
        if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)
        for name in names(node.target)
    }
    turns = names(loop.target) if isinstance(loop, ast.For) else gone_on | counters
    takes = any(
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and names(node.slice) & turns
        for node in inside
    )
    # a recurrent layer takes the same input many times in one call: `h = cell(z, h)`
    recurs = any(
        len(call.args) > 1 and names(call.args[1]) & gone_on and not names(call.args[0]) & (iteration.assigned | turns)
        for call in calls
    )
    if takes or recurs or not gone_on - counters or any(last_name(call.func) == "next" for call in calls):
        return False
    layers = any(isinstance(call.func, ast.Name) and call.func.id in turns for call in calls)
    return isinstance(loop, ast.While) or layers or _only_counts(loop.iter)


def _only_counts(iterable: ast.expr) -> bool:
    """True for `range(9)` and `tqdm(reversed(range(n)))`."""
    calls = [node for node in ast.walk(iterable) if isinstance(node, ast.Call)]
    return bool(calls) and isinstance(iterable, ast.Call) and all(last_name(call.func) in _COUNTING for call in calls)


def _loop_in(function: ast.AST, line: int, backwards: Set[int]) -> ast.stmt | ast.expr | None:
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in guarded(function)):
        return None
    loops = [
        node
        for node in guarded(function)
        if isinstance(node, _LOOPS) and covers(node, line) and node.body[0].lineno <= line
    ]
    for loop in loops:
        if not any(covers(loop, each) for each in backwards) and isinstance(loop, ast.For) and _is_independent(loop):
            return loop
    statement = statement_at(function, line)
    if (
        statement is None
        or isinstance(statement, (*_LOOPS, ast.With, ast.If))
        or any(covers(statement, each) for each in backwards)
    ):
        return None
    return next(
        (n for n in ast.walk(statement) if isinstance(n, COMPREHENSIONS) and covers(n, line) and _calls_something(n)),
        None,
    )


def _calls_something(comprehension: ast.expr) -> bool:
    element = getattr(comprehension, "elt", getattr(comprehension, "value", comprehension))
    return any(isinstance(node, (ast.Call, ast.BinOp)) for node in ast.walk(element))


def _keeps(sources: Sequence[Source], entry: Entry) -> bool:
    """True if a function that the loop calls keeps something for its next call."""
    function = function_at(sources, entry.file, entry.line)
    return function is not None and any(map(_is_kept, guarded(function)))


def _is_kept(node: ast.AST) -> bool:
    """True where something of an object or a module changes: `self.state = h`, `self.states.append(h)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_in_place(node.func.attr) and isinstance(node.func.value, ast.Attribute)
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return stored or isinstance(node, (ast.Global, ast.Nonlocal))


def _over(loop: ast.stmt | ast.expr) -> IteratesOver:
    rounds = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    text = " ".join(ast.unparse(each.iter) for each in rounds)
    if _PARAMETERS.search(text):
        return "squares" if any(map(_is_square, ast.walk(loop))) else "parameters"
    targets = set[str]().union(*(names(each.target) for each in rounds))
    called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    one_of_many = any(
        (isinstance(func, ast.Name) and func.id in targets)
        or (isinstance(func, ast.Subscript) and bool(names(func.slice) & targets))
        for func in called
    )
    return "modules" if one_of_many else "data"


def _is_square(node: ast.AST) -> bool:
    """True for `p ** 2`, `p.pow(2)` and `p.square()`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_two(node.right)
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    return name == "square" or (name == "pow" and bool(node.args) and _is_two(node.args[-1]))


def _is_two(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 2


@functools.lru_cache(maxsize=1024)
def _takes_prefixes(loop: ast.stmt | ast.expr) -> bool:
    """True if a call in the loop gets a part that begins at the start and ends where the iteration is."""
    rounds = [loop] if isinstance(loop, ast.For) else getattr(loop, "generators", [])
    turns = set[str]().union(*(names(each.target) for each in rounds))
    axes = (
        axis
        for call in ast.walk(loop)
        if isinstance(call, ast.Call)
        for given in (*call.args, *(k.value for k in call.keywords))
        for node in ast.walk(given)
        if isinstance(node, ast.Subscript)
        for axis in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
    )
    return any(
        isinstance(axis, ast.Slice)
        and axis.lower is None
        and axis.upper is not None
        and bool(names(axis.upper) & turns)
        for axis in axes
    )


def _is_independent(loop: ast.For) -> bool:
    iteration = _Iteration(loop)
    return not iteration.goes_on and not any(iteration.read[name] for name in iteration.assigned | iteration.gathered)


class _Iteration:
    """What one iteration does with names, in the order in which its statements run.

    `read`: names read before the iteration made them, with how often. `gathered`: sums, lists and tensors that take a part of each
    iteration. `goes_on`: it decides about later iterations, or keeps something in an object.
    """

    def __init__(self, loop: ast.For | ast.While) -> None:
        self.made = names(loop.target) if isinstance(loop, ast.For) else set[str]()
        self.read = Counter[str]()
        self.assigned, self.gathered = set[str](), set[str]()
        self.goes_on = False
        for statement in loop.body:
            self._follow(statement)

    @functools.singledispatchmethod
    def _follow(self, node: ast.AST) -> None:
        self._follow_all([*ast.iter_child_nodes(node)])

    @_follow.register
    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.made.add(node.id)
            self.assigned.add(node.id)
        elif node.id not in self.made:
            self.read[node.id] += 1

    @_follow.register
    def _assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        added = _added_to(node.value, first.id) if len(node.targets) == 1 and isinstance(first, ast.Name) else []
        if added:
            self._gather(first)
            self._follow_all(added)
            return
        self._follow(node.value)
        for target in node.targets:
            if isinstance(target, (ast.Subscript, ast.Attribute)):
                self._gather(target)
            else:
                self._follow(target)

    @_follow.register(ast.AnnAssign)
    @_follow.register(ast.NamedExpr)
    def _value_first(self, node: ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            self._follow(node.value)
        if isinstance(node.target, ast.Name):
            self._follow(node.target)
        else:
            self._gather(node.target)

    @_follow.register
    def _augmented(self, node: ast.AugAssign) -> None:
        self._gather(node.target)
        self._follow(node.value)

    @_follow.register
    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and is_in_place(node.func.attr):
            self._gather(node.func.value)
        else:
            self._follow(node.func)
        self._follow_all([*node.args, *node.keywords])

    @_follow.register
    def _loop(self, node: ast.For) -> None:
        self._follow_all([node.iter, node.target, *node.body, *node.orelse])

    @_follow.register(ast.ListComp)
    @_follow.register(ast.SetComp)
    @_follow.register(ast.GeneratorExp)
    @_follow.register(ast.DictComp)
    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        for each in node.generators:
            self._follow_all([each.iter, each.target, *each.ifs])
        self._follow_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    @_follow.register(ast.FunctionDef)
    @_follow.register(ast.AsyncFunctionDef)
    @_follow.register(ast.ClassDef)
    @_follow.register(ast.Lambda)
    def _aside(self, node: ast.AST) -> None:
        """A function or class that is defined there."""

    @_follow.register(ast.Break)
    @_follow.register(ast.Return)
    @_follow.register(ast.Yield)
    @_follow.register(ast.YieldFrom)
    @_follow.register(ast.Await)
    @_follow.register(ast.Global)
    @_follow.register(ast.Nonlocal)
    def _end(self, node: ast.AST) -> None:
        self.goes_on = True

    def _follow_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self._follow(node)

    def _gather(self, target: ast.expr) -> None:
        """Takes a part of this iteration into what `target` names. An attribute outlives the loop."""
        of = target
        while isinstance(of, ast.Subscript):
            self._follow(of.slice)
            of = of.value
        if not isinstance(of, ast.Name):
            self.goes_on = True
        elif of.id not in self.made:
            self.gathered.add(of.id)


def _added_to(value: ast.expr, name: str) -> list[ast.expr]:
    """What a sum with this name adds to it; empty if it is no such sum."""
    terms = list(_terms(value))
    others = [term for term in terms if not (isinstance(term, ast.Name) and term.id == name)]
    return others if len(terms) == len(others) + 1 and not any(name in names(term) for term in others) else []


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        yield from _terms(value.left)
        yield from _terms(value.right)
    else:
        yield value


@functools.lru_cache(maxsize=4096)
def operations_at(function: ast.AST, line: int) -> Counter[tuple[str, ...]]:
    """The operations that the statement at a line writes, each by its possible names in autograd's graph, with how often.

    Without what computes an index, and without the heads of loops and blocks.
    """
    statement = statement_at(function, line)
    if statement is None or isinstance(statement, (*_LOOPS, ast.If, ast.With)):
        return Counter()
    return Counter(_operations(statement))


def _operations(node: ast.AST) -> Iterator[tuple[str, ...]]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return
    if isinstance(node, ast.Call) and (name := plain_name(last_name(node.func))):
        yield graph_names(name)
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.UnaryOp)) and type(node.op) in _OPERATORS:
        yield _OPERATORS[type(node.op)]
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield _PARTS
    index = {node.slice} if isinstance(node, ast.Subscript) else set[ast.AST]()
    for child in ast.iter_child_nodes(node):
        if child not in index:
            yield from _operations(child)


def plain_name(name: str) -> str:
    """A name of a function or a class without capitals and underscores."""
    return name.replace("_", "").lower()


def graph_names(name: str) -> tuple[str, ...]:
    return _OTHER_NAMES.get(name, (name,))
