"""Finds the calls that convert a list or tuple to a tensor number by number, which joining its arrays first does in one piece.

Measured on 24 shapes: with `numpy.stack` first, lists of arrays took 0.07 of the time in the median, at most 0.45 where arrays had four
numbers; lists of lists with `numpy.array` first 0.22, at most 0.5.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from rn50_advisor.advisor.edits.syntax import Code, dotted_name, last_name

COPYING = ("list", "sorted", "tuple")
VIEWS = ("keys", "values", "items")
DRAWING = ("sample", "choice", "choices")
_CONVERTING = ("tensor", "as_tensor", "asarray", "Tensor", "FloatTensor", "DoubleTensor", "LongTensor", "IntTensor")
# Calls that take next to no time.
LIGHT = frozenset(
    {
        *DRAWING,
        *VIEWS,
        "add",
        "append",
        "detach",
        "enumerate",
        "float",
        "from_numpy",
        "int",
        "len",
        "list",
        "map",
        "range",
        "str",
        "tuple",
        "zip",
    }
)
# Calls that make the items ready for a conversion, and go with it; and those that follow it and take little.
_PREPARING = frozenset({*LIGHT, "array", "asarray", "astype", "copy", "cpu", "item", "numpy", "tolist"})
_SHAPING = frozenset(
    {"bool", "cuda", "double", "float", "int", "long", "reshape", "squeeze", "to", "unsqueeze", "view"}
)
_DRAWN = ("random.sample", "random.choices")
_ANNOTATED = re.compile(r"(?:\w+\.)?(?:list|tuple|Sequence|Iterable|List|Tuple)\b")
_STEPS_MAX = 3  # functions through which a list is followed


def is_conversion(code: Code, call: ast.Call) -> bool:
    """True for torch's functions that make a tensor of a list or tuple, number by number."""
    if last_name(call.func) not in _CONVERTING or not call.args or not _is_of_torch(code, call.func):
        return False
    return _is_sequence(code, call.args[0])


def is_plain_conversion(code: Code, call: ast.Call) -> bool:
    """True if what the items of the list are made by takes no time of its own."""
    inside = [node for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Call)]
    return is_conversion(code, call) and all(last_name(each.func) in _PREPARING for each in inside)


def is_beside(code: Code, conversion: ast.Call, other: ast.Call) -> bool:
    """True for what prepares the items that a conversion is given, for what shapes its result, and for another conversion."""
    if any(around is conversion for around in code.around(other)):
        return last_name(other.func) in _PREPARING
    of = other.func.value if isinstance(other.func, ast.Attribute) else None
    return (isinstance(of, ast.Call) and last_name(other.func) in _SHAPING) or is_conversion(code, other)


def _is_of_torch(code: Code, function: ast.expr) -> bool:
    """True for `torch.tensor`, and for what the file imports from torch or as which it imports torch."""
    owner = function.value if isinstance(function, ast.Attribute) else function
    known = {"torch"} if owner is not function else set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Import) and owner is not function:
            known |= {alias.asname or alias.name for alias in node.names if alias.name == "torch"}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch" and owner is function:
            known |= {alias.asname or alias.name for alias in node.names}
    return isinstance(owner, ast.Name) and owner.id in known


def _is_sequence(code: Code, node: ast.expr, steps: int = _STEPS_MAX) -> bool:
    """True for a list or tuple of things, written here or assigned to this name in the same function, or on an object in the same file."""
    if steps == 0:
        return False
    if isinstance(node, (ast.List, ast.Tuple)):
        return any(not isinstance(item, ast.Constant) for item in node.elts)
    if isinstance(node, ast.Call):
        made = isinstance(node.func, ast.Name) and node.func.id in (*COPYING, "zip")
        return made or last_name(node.func) == "tolist" or dotted_name(node.func) in _DRAWN
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Slice) and _is_of_columns(code, node.value, _holds_columns)
    return isinstance(node, ast.ListComp) or _is_named_sequence(code, node, steps)


def _is_named_sequence(code: Code, node: ast.expr, steps: int) -> bool:
    if isinstance(node, ast.Attribute) and _is_of_columns(code, node.value, _is_tuple_of_columns):
        return True
    if isinstance(node, ast.Name) and _is_given_sequences(code, node, steps):
        return True
    name = last_name(node)
    scope = next(iter(code.functions_around(node)), code.tree) if isinstance(node, ast.Name) else code.tree
    return name is not None and any(
        name in {last_name(at) for target in made.targets for at in _parts(target)} and _makes_sequences(made)
        for made in ast.walk(scope)
        if isinstance(made, ast.Assign)
    )


def _makes_sequences(made: ast.Assign) -> bool:
    """True if this assigns a list or a tuple, or several names the tuples that `zip(*rows)` or `map(list, zip(*rows))` yields."""
    value, several = made.value, isinstance(made.targets[0], ast.Tuple)
    if isinstance(value, (ast.List, ast.ListComp)):
        return not several
    called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    return called in ("zip", "map") if several else called in COPYING


def _is_of_columns(code: Code, owner: ast.expr, holds: Callable[[ast.expr], bool]) -> bool:
    """True for a name to which the same function assigns what holds columns, tuples of the fields of all rows, and nothing else."""
    if not isinstance(owner, ast.Name):
        return False
    scope = next(iter(code.functions_around(owner)), code.tree)
    made = [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and any((isinstance(target, ast.Name) and target.id == owner.id) for target in node.targets)
    ]
    return bool(made) and all(map(holds, made))


def _holds_columns(value: ast.expr) -> bool:
    """True for `list(zip(*rows))`."""
    called = last_name(value.func) if isinstance(value, ast.Call) else ""
    return called in COPYING and isinstance(value, ast.Call) and len(value.args) == 1 and _is_zip_of_rows(value.args[0])


def _is_tuple_of_columns(value: ast.expr) -> bool:
    """True for `Transition(*zip(*rows))`."""
    given = value.args if isinstance(value, ast.Call) else []
    return len(given) == 1 and isinstance(given[0], ast.Starred) and _is_zip_of_rows(given[0].value)


def _is_zip_of_rows(node: ast.expr) -> bool:
    starred = isinstance(node, ast.Call) and any(isinstance(argument, ast.Starred) for argument in node.args)
    return starred and isinstance(node, ast.Call) and last_name(node.func) == "zip"


def _is_given_sequences(code: Code, node: ast.Name, steps: int) -> bool:
    """True for a parameter that is annotated as a list or tuple, or for which each call in the file passes one."""
    function = next(iter(code.functions_around(node)), None)
    places = [] if function is None else [*function.args.posonlyargs, *function.args.args]
    parameter = next((place for place in places if place.arg == node.id), None)
    if function is None or parameter is None:
        return False
    if parameter.annotation is not None and _ANNOTATED.match(ast.unparse(parameter.annotation)):
        return True
    method = places[0].arg in ("self", "cls")
    calls = [call for call in code.calls() if last_name(call.func) == function.name]
    given = [_argument(call, parameter.arg, places.index(parameter) - method) for call in calls]
    return bool(given) and all(value is not None and _is_sequence(code, value, steps - 1) for value in given)


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return named if named is not None or starred or position >= len(call.args) else call.args[position]


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
