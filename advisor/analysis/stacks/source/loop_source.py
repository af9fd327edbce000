"""What the source of a training function shows that its stacks do not: which lines run in every step, and what the loss is computed of."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from rn50_advisor.advisor.model.analysis import EachTensor
from rn50_advisor.advisor.model.recording import Source

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.Match)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
# What a loop over the tensors of a model goes through, by the field's names.
_TENSORS = re.compile(r"param|\bstate_dict\(|\bbuffers\(|\bweights\b", re.IGNORECASE)
_GIVES_TENSORS = re.compile(r"\b(state_dict|(named_)?(parameters|buffers))\(")
# Methods of a tensor on its way into a call: `x_t.unsqueeze(0)`.
_TENSOR_METHODS = frozenset(
    ("unsqueeze", "squeeze", "view", "reshape", "flatten", "permute", "transpose", "contiguous", "to", "float")
)
_ARRAYS = re.compile(r"\.(tolist|numpy)\(|\bhist")


def function_at(sources: Sequence[Source], file: str, line: int) -> ast.AST | None:
    """The innermost function around a line, or the module; None if its source was not kept, has changed or cannot be parsed."""
    source = next((source for source in sources if source.path == file and not source.edited), None)
    tree = None if source is None else parsed(source.text)
    if tree is None:
        return None
    found = [node for node in _functions(tree) if covers(node, line)]
    return max(found, key=lambda node: node.lineno, default=tree)


def loops_around(sources: Sequence[Source], file: str, lines: Set[int]) -> bool:
    """True if one of these lines is inside a loop of its own function."""
    function = function_at(sources, file, max(lines))
    return function is not None and any(_loop(function, line) is not None for line in lines)


def heads_loop(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if this line is the head of a loop over something other than numbers."""
    function = function_at(sources, file, line)
    loops = (
        [] if function is None else [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.AsyncFor))]
    )
    return any(loop.lineno <= line < loop.body[0].lineno and "range" not in names_in(loop.iter) for loop in loops)


def loop_apart(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> int | None:
    """The first line of the outermost loop around a line that leads to no backward pass; None if there is none."""
    function = function_at(sources, file, line)
    nodes = [] if function is None else [node for node in ast.walk(function) if isinstance(node, _LOOPS)]
    around = [node for node in nodes if covers(node, line) and not any(covers(node, at) for at in backwards)]
    return min((node.lineno for node in around), default=None)


def tensor_loop(sources: Sequence[Source], file: str, line: int) -> EachTensor:
    """Says what the line does in a loop or a comprehension over a model's parameters, buffers or state; empty if it is in none.

    A line that turns tensors into arrays or lists counts as in none.
    """
    function = function_at(sources, file, line)
    nodes = [] if function is None else [node for node in ast.walk(function) if isinstance(node, (ast.stmt, ast.expr))]
    around = [node for node in nodes if covers(node, line)]
    loops = [node for node in around if isinstance(node, (*_LOOPS, *COMPREHENSIONS))]
    if function is None or not loops:
        return ""
    inner = max(loops, key=lambda loop: (loop.lineno, loop.col_offset))
    over = (
        [inner.iter]
        if isinstance(inner, (ast.For, ast.AsyncFor))
        else [g.iter for g in getattr(inner, "generators", ())]
    )
    statement = min((node for node in around if isinstance(node, ast.stmt)), key=_lines_of)
    done = [statement] if isinstance(statement, _SIMPLE) else over
    if not any(_of_tensors(function, iterable) for iterable in over) or any(map(_leaves_torch, (*over, *done))):
        return ""
    return "in place" if any(_changes_in_place(node) for node in done) else "new"


def _of_tensors(function: ast.AST, iterable: ast.expr) -> bool:
    """True by the expression, or by the call whose result is assigned to one of its names in the same function."""
    made = (value for target, value in _assigned(function) if names_in(target) & names_in(iterable))
    return bool(_TENSORS.search(ast.unparse(iterable))) or any(_GIVES_TENSORS.search(ast.unparse(v)) for v in made)


def _leaves_torch(node: ast.AST) -> bool:
    return _ARRAYS.search(ast.unparse(node)) is not None


def _changes_in_place(node: ast.AST) -> bool:
    """True if it calls an in-place function by torch's naming; `copy_` of a new tensor is none."""
    calls = [
        call.func.attr for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    ]
    return any(name.endswith("_") and not name.endswith("__") and name != "copy_" for name in calls)


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def is_called_again(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if a loop calls the same here in each round, rather than one layer after another: `self.rnn(x[t])`, not `layer(x)`."""
    function = function_at(sources, file, line)
    return function is not None and _calls_again(function, line)


@functools.lru_cache(maxsize=1024)  # a live job is analysed each second, with the same lines
def _calls_again(function: ast.AST, line: int) -> bool:
    loop = _loop(function, line)
    if loop is None:
        return False
    targets = names_in(loop.target) if isinstance(loop, (ast.For, ast.AsyncFor)) else set()
    called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call) and covers(node, line)]
    own = [func for func in called if not (isinstance(func, ast.Attribute) and func.attr in _TENSOR_METHODS)]
    return bool(own) and not any(targets & names_in(func) for func in own)


def in_every_round(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> bool:
    """True if the innermost loop around a line that leads to the backward pass runs this other line in every round."""
    function = function_at(sources, file, line)
    loops = [] if function is None else [_loop(function, backward) for backward in backwards]
    return any(loop is not None and covers(loop, line) and not _seldom(loop, line, backwards) for loop in loops)


def once_a_round(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> bool:
    """True if a loop around the one that leads to the backward pass runs this line outside of it: before or after a series of steps."""
    function = function_at(sources, file, line)
    loops = [] if function is None else [node for node in ast.walk(function) if isinstance(node, _LOOPS)]
    inner = [loop for at in backwards if function is not None and (loop := _loop(function, at)) is not None]
    around = [loop for loop in loops if covers(loop, line) and any(covers(loop, each.lineno) for each in inner)]
    return bool(around) and not any(covers(loop, line) for loop in inner)


def is_trained_on(sources: Sequence[Source], file: str, line: int, backwards: Set[int]) -> bool:
    """True if lines that lead to the backward pass use what this line assigns, or what is computed of that, in the same function."""
    function = function_at(sources, file, line)
    if function is None:
        return False
    flows = [
        (names_in(target), names_in(value), value.lineno, value.end_lineno or 0) for target, value in _flows(function)
    ]
    used: set[str] = set()
    for targets, values, first, last in flows:
        if first <= line <= last:
            used |= targets - values  # a model that is passed in and returned is no data
    used = _carried(((targets, values) for targets, values, *_ in flows), used)
    return any(
        used & names_in(node)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and not covers(node, line) and any(covers(node, at) for at in backwards)
    )


# A live job is analysed each second, with the same lines.
@functools.lru_cache(maxsize=4096)
def computed_of(
    sources: tuple[Source, ...], file: str, line: int, origins: frozenset[int], *, unless: re.Pattern[str]
) -> bool:
    """True if the statement of this line is one of those of `origins`, or uses what they assign, or what is computed of that, in the same
    function. False if its text matches `unless`, or spans other statements, as the head of a loop does.
    """
    function = function_at(sources, file, line)
    nodes = () if function is None else ast.walk(function)
    statement = next((node for node in nodes if isinstance(node, _SIMPLE) and covers(node, line)), None)
    if function is None or statement is None or unless.search(ast.unparse(statement)):
        return False
    if any(covers(statement, origin) for origin in origins):
        return True
    assigned = list(_assigned(function))
    made = [names_in(target) for target, value in assigned if any(covers(value, origin) for origin in origins)]
    known = _carried(((names_in(target), names_in(value)) for target, value in assigned), set().union(*made))
    return bool(known & names_in(statement))


def _carried(flows: Iterable[tuple[set[str], set[str]]], names: set[str]) -> set[str]:
    """These names, and those of what is computed of them. `flows`: (assigned to, computed of)."""
    every, known, size = list(flows), set(names), -1
    while known and size != len(known):
        size = len(known)
        for targets, values in every:
            if values & known:
                known |= targets
    return known


def is_passed_on(sources: Sequence[Source], file: str, line: int, called: str, learners: Set[str]) -> bool:
    """True if the line hands what `called` returns to one of these functions: `update(collect())`."""
    function = function_at(sources, file, line)
    calls = [] if function is None else [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {name.rpartition(".")[2] for name in learners}
    outer = [call for call in calls if covers(call, line) and _name_of(call) in names]
    inside = (node for call in outer for each in (*call.args, *call.keywords) for node in ast.walk(each))
    return any(isinstance(node, ast.Call) and _name_of(node) == called.rpartition(".")[2] for node in inside)


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _flows(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each assignment and each loop."""
    yield from _assigned(function)
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield node.target, node.iter


def _assigned(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of each assignment."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield node.target, node.value


def names_in(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _seldom(loop: ast.stmt, line: int, backwards: Set[int]) -> bool:
    """True if a branch in the loop has the line but no backward pass."""
    return any(
        isinstance(node, _BRANCHES) and covers(node, line) and not any(covers(node, other) for other in backwards)
        for node in ast.walk(loop)
    )


def _loop(function: ast.AST, line: int) -> ast.stmt | None:
    """The innermost loop of this function whose body has the line."""
    found = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and covers(node, line)]
    return max((loop for loop in found if loop.body[0].lineno <= line), key=lambda loop: loop.lineno, default=None)


def covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@functools.lru_cache(maxsize=32)
def _functions(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


@functools.lru_cache(maxsize=32)
def parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
