"""Finds the expression that leaves items out of a whole collection for a few draws from what is left.

`pool = [n for n in range(size) if n not in seen]` with `random.choice(pool)` asks for every item of the collection; drawing again until the
item is none of those that are to be left out asks for one or two. What is used in another way than by draws is none of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

from rn50_advisor.advisor.edits.syntax import Code, dotted_name, last_name
from rn50_advisor.advisor.run.stacks.arrays_in_code import ARRAY_LIBRARIES
from rn50_advisor.advisor.run.stacks.conversions import COPYING, DRAWING, LIGHT
from rn50_advisor.probes.host.stacks.process_stacks import Frame

_SETS, _LEFT = ("set", "frozenset"), "difference"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_KINDS = {ast.ListComp: "list comprehension", ast.SetComp: "set comprehension", ast.GeneratorExp: "generator"}
_OWN_FRAMES = ("<listcomp>", "<setcomp>", "<genexpr>", "<lambda>")  # before Python 3.12; then only the last two
# Calls that go through all items of what they are given.
_WHOLE = ("arange", "enumerate", "items", "keys", "list", "range", "set", "sorted", "tuple", "values", "zip")
_ARRAYS_LEFT = ("setdiff1d", "delete", "flatnonzero")
_PLACES = ("where", "nonzero", "argwhere")  # with the condition alone, where something is true
_WRAPPING = ("list", "sorted", "tuple", "set", "array", "asarray", "tensor", "as_tensor", "LongTensor", "from_numpy", "tolist", "flatten",
             "squeeze", "numpy", "ravel")  # fmt: skip
_INDEXING = ("choice", "choices", "integers", "randint", "random", "randrange", "rand", "sample", "uniform")
_PERMUTING = ("permutation", "randperm")
_ASKING = ("len", "bool", "size", "numel")
_STEPS_MAX = 4  # names that it is handed on to


def filtered_draw(code: Code, frame: Frame, inner: str | None) -> str | None:
    """What the frame's line leaves items out of, as findings name it; None if it does not, or if what is left is not drawn from.

    `inner`: the function that the line has called, None for one without a frame.
    """
    for node in _filters(code, frame.line):
        lines = _lines(code, node)
        if not any(at.lineno <= frame.line <= (at.end_lineno or 0) for at in lines):
            continue
        called = {last_name(each.func) for at in (node, *lines) for each in ast.walk(at) if isinstance(each, ast.Call)}
        runs = inner is None or inner.rpartition(".")[2] in (called | {*_OWN_FRAMES}) - {None}
        inside = frame.function.endswith(_OWN_FRAMES)
        if not runs or not (inside or inner is not None or _is_alone(code, frame.line, called)):
            continue
        if _is_drawn(code, node) and (not _may_be_difference(node) or _is_difference(code, node)):
            return _name(node, lines)
    return None


def _name(node: ast.expr, lines: Sequence[ast.expr]) -> str:
    if isinstance(node, _COMPREHENSIONS):
        return _KINDS[type(node)]
    if isinstance(node, ast.Subscript):
        return f"{dotted_name(node.value)}[...]"
    made = lines[1] if _may_be_difference(node) and len(lines) > 1 else node
    return dotted_name(made.func) if isinstance(made, ast.Call) else "set"


def _filters(code: Code, line: int) -> Iterator[ast.expr]:
    """Yields the expressions of the function around a line that may make a new collection of some items of another one."""
    for node in ast.walk(code.function_at(line) or code.tree):
        if isinstance(node, ast.expr) and (
            _is_filtering(node) or _is_masked(node) or _is_of_library(node) or _may_be_difference(node)
        ):
            yield node


def _is_filtering(node: ast.expr) -> bool:
    """True for a comprehension with a condition, and for `filter(condition, items)`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "filter" and len(node.args) == 2
    if not isinstance(node, _COMPREHENSIONS) or len(node.generators) != 1 or not node.generators[0].ifs:
        return False
    through = node.generators[0].iter
    return isinstance(through, (ast.Name, ast.Attribute)) or (
        isinstance(through, ast.Call) and last_name(through.func) in _WHOLE
    )


def _is_masked(node: ast.expr) -> bool:
    """True for `items[labels != label]`, with the condition written there."""
    if not isinstance(node, ast.Subscript):
        return False
    mask = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
    return isinstance(mask, ast.Compare) or (isinstance(mask, ast.Call) and last_name(mask.func) in ("isin", "in1d"))


def _is_of_library(node: ast.expr) -> bool:
    """True for `np.setdiff1d(items, seen)`, `np.where(labels != label)` and `(labels == label).nonzero()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner, name = node.func.value, node.func.attr
    if isinstance(owner, ast.Name) and owner.id in ARRAY_LIBRARIES:
        return name in _ARRAYS_LEFT or (name in _PLACES and len(node.args) == 1)
    return name == "nonzero" and isinstance(owner, ast.Compare)


def _may_be_difference(node: ast.expr) -> bool:
    """True for `items - others` and `items.difference(others)`, of sets or not."""
    method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _LEFT
    return method or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub))


def _is_difference(code: Code, node: ast.expr) -> bool:
    """True for such a difference of a set that the file makes."""
    of = node.left if isinstance(node, ast.BinOp) else node.func if isinstance(node, ast.Call) else node
    return _is_set(code, of.value if isinstance(of, ast.Attribute) and isinstance(node, ast.Call) else of)


def _is_set(code: Code, node: ast.expr) -> bool:
    """True for `set(...)`, and for a name to which the file assigns a set."""
    if isinstance(node, (ast.Set, ast.SetComp)) or (isinstance(node, ast.Call) and last_name(node.func) in _SETS):
        return True
    name = last_name(node)
    return name is not None and any(
        isinstance(made, (ast.Assign, ast.AnnAssign))
        and made.value is not None
        and not isinstance(made.value, (ast.Name, ast.Attribute))
        and name in {last_name(at) for at in (made.targets if isinstance(made, ast.Assign) else [made.target])}
        and _is_set(code, made.value)
        for made in ast.walk(code.tree)
    )


def _lines(code: Code, node: ast.expr) -> list[ast.expr]:
    """The expression, and what copies or converts the result as a whole on its way to the draws."""
    copying = (*_WRAPPING, "choice")  # numpy's makes an array of a list
    return [
        node,
        *(each for each in _ways(code, node) if isinstance(each, ast.Call) and last_name(each.func) in copying),
    ]


def _ways(code: Code, node: ast.expr, steps: int = _STEPS_MAX) -> Iterator[ast.expr]:
    """Yields the expressions around the uses of what an expression makes: the calls that it is given to, and what is taken out of it."""
    for use in _uses(code, node):
        around = code.parent(use)
        if isinstance(around, ast.Attribute):
            around = code.parent(around)
        if not isinstance(around, ast.expr):
            continue
        yield around
        if steps and _is_wrapping(around, use):
            yield from _ways(code, around, steps - 1)


def _uses(code: Code, node: ast.expr) -> list[ast.expr]:
    """The expression itself, or where it is assigned to one name that is assigned nothing else, all uses of this name."""
    made = code.parent(node)
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
        return [node]
    name = made.targets[0].id
    scope = next(iter(code.functions_around(made)), code.tree)
    names = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == name]
    loads = [each for each in names if isinstance(each.ctx, ast.Load)]
    return list(loads) if len(names) == len(loads) + 1 else []


def _is_drawn(code: Code, node: ast.expr, steps: int = _STEPS_MAX) -> bool:
    """True if each use of what an expression makes is a draw of a few items or a question about its length, and one is a draw."""
    kinds = [_kind_of_use(code, use, steps) for use in _uses(code, node)]
    return "draw" in kinds and None not in kinds


def _kind_of_use(code: Code, use: ast.expr, steps: int) -> Literal["draw", "question"] | None:
    around = code.parent(use)
    if isinstance(around, ast.Attribute):
        around = around if around.attr == "shape" else code.parent(around)
    if around is None or _is_question(around, use):
        return None if around is None else "question"
    if isinstance(around, ast.Call) and around.args[:1] == [use] and _draws_few(code, around, use):
        return "draw"
    if isinstance(around, ast.Subscript) and around.value is use and _takes_few(code, around, steps):
        return "draw"
    handed_on = isinstance(around, ast.expr) and steps > 0 and _is_wrapping(around, use)
    return "draw" if handed_on and _is_drawn(code, around, steps - 1) else None  # type: ignore[arg-type]


def _is_question(around: ast.AST, use: ast.expr) -> bool:
    """True where only the length counts, or whether there is any item."""
    asks = isinstance(around, ast.Call) and last_name(around.func) in _ASKING
    negated = isinstance(around, ast.UnaryOp) and isinstance(around.op, ast.Not)
    return asks or negated or isinstance(around, ast.Attribute) or getattr(around, "test", None) is use


def _takes_few(code: Code, part: ast.Subscript, steps: int) -> bool:
    """True for a drawn index, and for any part of a copy that is made for it."""
    copied = isinstance(part.value, ast.Call) and last_name(part.value.func) in COPYING and not part.value.keywords
    return copied or _is_drawn_index(code, part.slice, steps)


def _draws_few(code: Code, call: ast.Call, pool: ast.expr) -> bool:
    """True for `random.choice(pool)` and `np.random.permutation(pool)[:k]`; not with chances, nor of as many as there are."""
    name, text = last_name(call.func), ast.unparse(pool)
    if name in _PERMUTING:
        around = code.parent(call)
        return isinstance(around, ast.Subscript) and around.value is call
    given = {keyword.arg for keyword in call.keywords}
    rest = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    whole = any(ast.unparse(each) == f"len({text})" for value in rest for each in ast.walk(value) if each is value)
    return name in DRAWING and not given & {"p", "weights", "cum_weights"} and not whole


def _is_drawn_index(code: Code, index: ast.expr, steps: int) -> bool:
    """True for an index that a call draws, there or where it is assigned to the index's name."""
    if isinstance(index, ast.Slice) or not steps:
        return False
    for node in ast.walk(index):
        drawn = node.value if isinstance(node, ast.Subscript) else node
        names = _INDEXING if drawn is node else _PERMUTING  # a part of a permutation
        if isinstance(drawn, ast.Call) and last_name(drawn.func) in names:
            return True
    if isinstance(index, ast.Name):
        scope = next(iter(code.functions_around(index)), code.tree)
        values = [
            node.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and any(last_name(target) == index.id for target in node.targets)
        ]
        return len(values) == 1 and _is_drawn_index(code, values[0], steps - 1)
    return False


def _is_wrapping(around: ast.AST, use: ast.expr) -> bool:
    """True for what copies or converts the whole of it: `list(rest)`, `torch.tensor(rest)`, `rest.tolist()`, and `np.where(...)[0]`."""
    if isinstance(around, ast.Call):
        owner = around.func.value if isinstance(around.func, ast.Attribute) else None
        return last_name(around.func) in _WRAPPING and (around.args[:1] == [use] or owner is use)
    places = isinstance(use, ast.Call) and last_name(use.func) in _PLACES
    first = isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Constant) and around.slice.value == 0
    return first and places


def _is_alone(code: Code, line: int, called: set[str | None]) -> bool:
    """True if a line calls nothing that takes time beside these, as far as calls of this kind leave no frame of their own."""
    light = {*LIGHT, *_INDEXING, *_WRAPPING, *_ASKING, *called}
    return all(last_name(call.func) in light for call in code.calls() if call.lineno <= line <= (call.end_lineno or 0))
