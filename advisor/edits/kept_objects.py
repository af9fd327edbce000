"""Decides whether an expression stands for an object that is there before an item is made, and remains: an archive that was opened once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rn50_advisor.advisor.edits.constant_values import Values, values_bound
from rn50_advisor.advisor.edits.names import parameters
from rn50_advisor.advisor.edits.syntax import Code, Function, inside, last_name

_STEPS_MAX = 8  # names and functions followed
_SETTING_UP = ("__init__", "__post_init__", "__new__", "__setstate__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def kept_object(values: Values, node: ast.expr, steps: int = _STEPS_MAX) -> list[ast.expr] | None:
    """The indices with which an expression takes an object out of a kept one, innermost last; None if the code does not show a kept one.

    Kept is what `__init__` sets, what a method sets when it is needed first, what the module assigns once, and what a call with the same
    arguments opens each time. `self.archives[at % 9]` is one of several kept objects: its index is returned.
    """
    if steps == 0:
        return None
    if isinstance(node, ast.Subscript):
        found = kept_object(values, node.value, steps - 1)
        return None if found is None else [*found, node.slice]
    if isinstance(node, ast.Attribute):
        return _of_attribute(values, node, steps)
    if isinstance(node, ast.Call):
        return _of_call(values, node, steps)
    return _of_name(values, node.id, steps) if isinstance(node, ast.Name) else None


def _of_attribute(values: Values, node: ast.Attribute, steps: int) -> list[ast.expr] | None:
    if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
        return kept_object(values, node.value, steps - 1)
    classes = list(_family(values))
    getter = _method(classes, node.attr)
    if getter is not None:
        return _returned(values, getter, steps)
    set_there = [(cls, value) for cls in classes for value in _set_on_self(cls, node.attr)]
    declared = any(_declares(cls, node.attr) for cls in classes)
    lasting = all(_is_set_once(values, value, node.attr) for _, value in set_there)
    return [] if (set_there or declared) and lasting else None


def _of_call(values: Values, node: ast.Call, steps: int) -> list[ast.expr] | None:
    if values.same_call(node):
        return []
    own = isinstance(node.func, ast.Attribute) and last_name(node.func.value) == "self"
    name = last_name(node.func) or ""
    found = _method(list(_family(values)), name) if own else _function(values.code, name)
    if found is None or not all(map(values.same, (*node.args, *(k.value for k in node.keywords)))):
        return None
    return _returned(values, found, steps)


def _of_name(values: Values, name: str, steps: int) -> list[ast.expr] | None:
    function = values.function
    bound = [] if function is None or _is_global(function, name) else values_bound(function, name)
    if len(bound) == 1 and bound[0] is not None:
        return kept_object(values, bound[0], steps - 1)
    if bound or (function is not None and name in parameters(function)):
        return None
    assigned = [value for value in _assigned_anywhere(values.code, name) if not _is_none(value)]
    return [] if len(assigned) == 1 else None


def _returned(values: Values, function: Function, steps: int) -> list[ast.expr] | None:
    """What all `return` statements of a function of the user's give: a kept object, without indices."""
    inner = Values(values.code, function, parameters(function))
    given = [node.value for node in inside(function) if isinstance(node, ast.Return) and node.value is not None]
    kept = [kept_object(inner, value, steps - 1) for value in given]
    return [] if kept and all(found == [] for found in kept) else None


def _is_set_once(values: Values, value: ast.expr | None, name: str) -> bool:
    """True for what `__init__` sets, for None, and for what an `if` around it sets when it is needed first, the same each time."""
    if value is None:
        return False
    functions = values.code.functions_around(value)
    if _is_none(value) or (functions and functions[0].name in _SETTING_UP):
        return True
    asks = any(isinstance(node, ast.If) and _asks_for(node.test, name) for node in values.code.around(value))
    if not asks or not functions:
        return False
    setter = Values(values.code, functions[0])
    return setter.same(value) or kept_object(setter, value, steps=2) == []


def _asks_for(test: ast.expr, name: str) -> bool:
    """True for `self.kept is None`, `not self.kept` and `not hasattr(self, "kept")`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asked(test.operand) == name
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Is):
        return False
    return _is_none(test.comparators[0]) and _asked(test.left) == name


def _asked(node: ast.expr) -> str | None:
    """The attribute of `self.kept`, `hasattr(self, "kept")` and `getattr(self, "kept", None)`."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr") and len(node.args) > 1:
        named = node.args[1]
        return str(named.value) if isinstance(named, ast.Constant) else None
    return node.attr if isinstance(node, ast.Attribute) else None


def _family(values: Values) -> Iterator[ast.ClassDef]:
    """The class around the function, and the classes of the same file that it is derived from."""
    left = [values.code.class_around(values.function)] if values.function is not None else []
    seen = set[int]()
    while left:
        cls = left.pop()
        if cls is None or id(cls) in seen:
            continue
        seen.add(id(cls))
        yield cls
        bases = {last_name(base) for base in cls.bases}
        left += [node for node in values.code.tree.body if isinstance(node, ast.ClassDef) and node.name in bases]


def _set_on_self(cls: ast.ClassDef, name: str) -> Iterator[ast.expr | None]:
    """The values that a class assigns to an attribute of its object; None for any other way to set it."""
    for node in ast.walk(cls):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_own(target, name) for target in targets):
                if not (isinstance(node, ast.AnnAssign) and node.value is None):
                    yield node.value
            elif any(_is_own(part, name) for target in targets for part in ast.walk(target)):
                yield from () if any(isinstance(target, ast.Subscript) for target in targets) else (None,)
        elif any(_is_own(target, name) for target in _bound_otherwise(node)):
            yield None


def _bound_otherwise(node: ast.AST) -> list[ast.expr]:
    """What a loop, `+=`, `:=` or `with ... as` binds."""
    if isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr)):
        return [node.target]
    return [node.optional_vars] if isinstance(node, ast.withitem) and node.optional_vars is not None else []


def _declares(cls: ast.ClassDef, name: str) -> bool:
    """True for a field of a dataclass, or what a class sets for all of its objects."""
    fields = (node.target for node in cls.body if isinstance(node, ast.AnnAssign))
    of_all = (target for node in cls.body if isinstance(node, ast.Assign) for target in node.targets)
    return any(isinstance(target, ast.Name) and target.id == name for target in (*fields, *of_all))


def _method(classes: list[ast.ClassDef], name: str) -> Function | None:
    found = (node for cls in classes for node in cls.body if isinstance(node, _FUNCTIONS) and node.name == name)
    return next(found, None)


def _function(code: Code, name: str) -> Function | None:
    return next((node for node in code.tree.body if isinstance(node, _FUNCTIONS) and node.name == name), None)


def _assigned_anywhere(code: Code, name: str) -> list[ast.expr | None]:
    """The values that the module, and functions that declare the name `global`, give it."""
    scopes = [code.tree, *(f for f in ast.walk(code.tree) if isinstance(f, _FUNCTIONS) and _is_global(f, name))]
    return [value for scope in scopes for value in values_bound(scope, name)]


def _is_global(function: Function, name: str) -> bool:
    return any(isinstance(node, ast.Global) and name in node.names for node in inside(function))


def _is_own(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
