"""Decides whether an expression has the same value for each item of a data set, so that a call with it repeats the same work."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from rn50_advisor.advisor.edits.names import assignments, parameters
from rn50_advisor.advisor.edits.origins import set_on_self
from rn50_advisor.advisor.edits.syntax import Code, Function, Scope, inside, last_name

_STEPS_MAX = 12  # names followed and expressions entered
# Calls that make a text or a path of others, and nothing that keeps a position.
_TEXTS = frozenset({
    "Path", "PurePath", "abspath", "as_posix", "expanduser", "format", "fspath", "getenv", "int", "join", "joinpath", "realpath",
    "resolve", "str", "with_suffix",
})  # fmt: skip
# Calls that open, read or build something, or list a folder, and classes.
OPENS = re.compile(
    r"_?(build|compile|connect|create|from|load|loads|open|parse|read)(_\w+)?$"
    r"|(i|r)?glob$|(iter|list|scan)dir$|walk$|[A-Z]\w*[a-z]\w*$"
)
_MADE_OF_PARTS = (ast.BinOp, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Starred)


def opens(name: str) -> bool:
    """True if a call of this name opens, reads or builds something, rather than draw a number, change or compute something."""
    return bool(OPENS.match(name))


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a function's expressions. `function`: None for the module.

    `constant`: parameters that get the same value for each item. `anew`: the function runs for each item, so that a file
    which it opens is at its start; a file that was opened before has moved on since, and its contents differ.
    """

    code: Code
    function: Function | None
    constant: Collection[str] = ()
    anew: bool = True

    def same(self, node: ast.expr | None, steps: int = _STEPS_MAX) -> bool:
        """True if the code shows that the value is the same for each item."""
        if node is None or steps == 0:
            return False
        if isinstance(node, ast.Name):
            return self._name(node.id, steps - 1)
        if isinstance(node, ast.Call):
            return self.same_call(node, steps - 1)
        if isinstance(node, ast.Attribute) and _is_self(node.value):
            return self._own(node.attr, steps - 1)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._part(node, steps - 1)
        parts = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        made_of_parts = isinstance(node, _MADE_OF_PARTS) or _compares_with_constant(node)
        return isinstance(node, ast.Constant) or (made_of_parts and all(self.same(part, steps - 1) for part in parts))

    def same_call(self, call: ast.Call, steps: int = _STEPS_MAX) -> bool:
        """True if a call opens, reads or builds something, or makes a text, of values that are the same for each item."""
        name = last_name(call.func) or ""
        if name not in _TEXTS and not (self.anew and opens(name)):
            return False
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return all(self.same(value, steps) for value in (*owner, *call.args, *(k.value for k in call.keywords)))

    def _name(self, name: str, steps: int) -> bool:
        if self.function is None:
            values = assignments(self.code.tree, name)
            return _defined(self.code, name) or all(self.same(value, steps) for value in values)
        bound = values_bound(self.function, name)
        if name in parameters(self.function):
            return name in self.constant and not bound
        if bound:
            return all(self.same(value, steps) for value in bound)
        return replace(self, function=None, anew=False).same(ast.Name(name), steps)

    def _own(self, name: str, steps: int) -> bool:
        """An attribute of the data set, set by `__init__` alone."""
        made, values = self._set_by_init(name)
        if made is None:
            return False
        then = replace(self, function=made, constant=parameters(made), anew=False)
        return all(then.same(value, steps) for value in values)

    def _part(self, node: ast.Attribute | ast.Subscript, steps: int) -> bool:
        """An attribute or element of an object that is the same one: its options and paths are the same, too."""
        if isinstance(node, ast.Subscript) and not self.same(node.slice, steps):
            return False
        whole = node.value
        if isinstance(whole, ast.Attribute) and _is_self(whole.value):
            return self._set_by_init(whole.attr)[0] is not None
        if isinstance(whole, (ast.Attribute, ast.Subscript)):
            return self._part(whole, steps)
        if not isinstance(whole, ast.Name):
            return self.same(whole, steps)
        if whole.id == "sys":  # its streams move on
            return False
        local = self.function is not None and (
            whole.id in parameters(self.function) or values_bound(self.function, whole.id)
        )
        return self._name(whole.id, steps) if local else len(assignments(self.code.tree, whole.id)) <= 1

    def _set_by_init(self, name: str) -> tuple[Function | None, list[ast.expr | None]]:
        """`__init__` and the values that it sets this attribute to; None if it does not, or if other methods set it as well."""
        cls = self.code.class_around(self.function) if self.function is not None else None
        if cls is None:
            return None, []
        made = next((f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        values = set_on_self(cls, name)
        alone = bool(values) and all(v is not None and made in self.code.functions_around(v) for v in values)
        return (made, values) if alone else (None, [])


def _compares_with_constant(node: ast.expr) -> bool:
    """True for `self.mode == "zip"`; not for what asks a collection, which an item may have filled."""
    if isinstance(node, ast.BoolOp):
        return all(map(_compares_with_constant, node.values))
    return (
        isinstance(node, ast.Compare)
        and not any(isinstance(how, (ast.In, ast.NotIn)) for how in node.ops)
        and any(isinstance(part, ast.Constant) for part in (node.left, *node.comparators))
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def values_bound(scope: Scope, name: str) -> list[ast.expr | None]:
    """Values that a function or module binds to a name, by `=` or `with ... as`; None for each other binding."""
    values = assignments(scope, name)
    for node in inside(scope):
        target = node.optional_vars if isinstance(node, ast.withitem) else None
        if isinstance(node, ast.withitem) and isinstance(target, ast.Name) and target.id == name:
            values[values.index(None)] = node.context_expr
    return values


def _defined(code: Code, name: str) -> bool:
    """True for a name that the module imports or defines."""
    return any(
        (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name)
        or (
            isinstance(node, (ast.Import, ast.ImportFrom))
            and any((alias.asname or alias.name.partition(".")[0]) == name for alias in node.names)
        )
        for node in inside(code.tree)
    )
