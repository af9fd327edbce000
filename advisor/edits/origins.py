"""Follows a value back to its origin in the code: a literal, a command-line option, or unknown."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.edits.names import assignments, bound_otherwise, parameters, stored, written_dict
from rn50_advisor.advisor.edits.script_options import Option, decorating_option, environment_variable, options_for
from rn50_advisor.advisor.edits.syntax import Code, Function, is_literal, last_name

_NAMES_FOLLOWED_MAX = 6  # names assigned from other names
_NAMESPACES = ("Namespace", "SimpleNamespace", "EasyDict", "edict")


@dataclass(frozen=True, slots=True)
class Literally:
    """A literal, written only here."""

    code: Code
    node: ast.expr


@dataclass(frozen=True, slots=True)
class FromOption:
    option: Option
    changed_at: int | None = None  # a line that may set the attribute again before it is used


@dataclass(frozen=True, slots=True)
class Unknown:
    """Computed, passed from elsewhere, or written in more than one place."""


Origin = Literally | FromOption | Unknown


def origin_of(code: Code, node: ast.expr, others: Sequence[Code] = (), steps: int = _NAMES_FOLLOWED_MAX) -> Origin:
    """Returns the origin of an expression's value. `others`: further files of the job, which may declare options."""
    found: Origin = Unknown()
    if is_literal(node):
        found = Literally(code, node)
    elif steps == 0:
        pass
    elif isinstance(node, ast.Call):
        found = _of_call(code, node, others, steps)
    elif isinstance(node, ast.Name):
        found = _of_name(code, node, others, steps)
    elif isinstance(node, ast.Attribute):
        found = _of_attribute(code, node, others, steps)
    elif isinstance(node, ast.Subscript) and (element := _element(code, node, steps)) is not None:
        found = origin_of(code, element, others, steps - 1)
    return found


def _of_call(code: Code, node: ast.Call, others: Sequence[Code], steps: int) -> Origin:
    if last_name(node.func) in ("int", "bool") and len(node.args) == 1 and not node.keywords:
        return origin_of(code, node.args[0], others, steps - 1)
    option = environment_variable(code, node)
    return FromOption(option) if option else Unknown()


def _of_name(code: Code, node: ast.Name, others: Sequence[Code], steps: int) -> Origin:
    if bound_otherwise(code, node):
        return Unknown()
    for function in code.functions_around(node):
        assigned = assignments(function, node.id)
        parameter = node.id in parameters(function)
        if assigned and not parameter:
            return _of_assigned(code, assigned, others, steps)
        if parameter:
            return Unknown() if assigned else _of_parameter(code, function, node.id, others, steps)
    return _of_assigned(code, assignments(code.tree, node.id), others, steps)


def _of_assigned(code: Code, assigned: list[ast.expr | None], others: Sequence[Code], steps: int) -> Origin:
    """Returns the origin of a name or attribute that is assigned exactly once, by `name = ...`; else Unknown."""
    if len(assigned) != 1 or assigned[0] is None:
        return Unknown()
    return origin_of(code, assigned[0], others, steps - 1)


def _of_parameter(code: Code, function: Function, name: str, others: Sequence[Code], steps: int) -> Origin:
    option = decorating_option(code, function, name)
    if option is not None:
        return FromOption(option)
    passed, called = _passed(code, function, name)
    if passed:
        found = [Unknown() if v is None else origin_of(code, v, others, steps - 1) for v in passed]
        return found[0] if all(origin == found[0] for origin in found) else Unknown()
    default = _default(function, name)
    if called and default is not None:
        return origin_of(code, default, others, steps - 1)
    return Unknown()


def _passed(code: Code, function: Function, name: str) -> tuple[list[ast.expr | None], int]:
    """Returns the arguments that callers in this file pass for a parameter (None if hidden by a star), and the number of callers."""
    cls = code.parent(function)
    method = isinstance(cls, ast.ClassDef)
    called_as = cls.name if isinstance(cls, ast.ClassDef) and function.name == "__init__" else function.name
    position = parameters(function).index(name) - (1 if method and not _is_static(function) else 0)
    keyword_only = name in [a.arg for a in function.args.kwonlyargs]
    calls = [call for call in code.calls() if last_name(call.func) == called_as]
    found: list[ast.expr | None] = []
    for call in calls:
        by_name = [k.value for k in call.keywords if k.arg == name]
        starred = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        if by_name:
            found.append(by_name[0])
        elif starred:
            found.append(None)
        elif not keyword_only and position < len(call.args):
            found.append(call.args[position])
    return found, len(calls)


def _is_static(function: Function) -> bool:
    return any(last_name(d) == "staticmethod" for d in function.decorator_list)


def _default(function: Function, name: str) -> ast.expr | None:
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = dict(zip([p.arg for p in positional][::-1], a.defaults[::-1], strict=False))
    defaults.update({p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None})
    return defaults.get(name)


def _of_attribute(code: Code, node: ast.Attribute, others: Sequence[Code], steps: int) -> Origin:
    base, name = node.value, node.attr
    cls = code.class_around(node)
    if cls is not None and isinstance(base, ast.Name) and base.id == "self":
        set_here = set_on_self(cls, name)
        if set_here:
            return _of_assigned(code, set_here, others, steps)
        return _of_field(code, cls, name, others, steps)
    if cls is not None and ast.unparse(base) == "self.hparams":
        # Lightning's save_hyperparameters() keeps the arguments of __init__
        made = next((f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        if made is not None and name in parameters(made):
            return _of_parameter(code, made, name, others, steps)
    options = options_for([code, *others], name)
    if options:
        same = len({option.flags for option in options}) == 1
        changed = _set_anew(options[0].code, name) or _set_anew(code, name)
        return FromOption(options[0], options[1].line if len(options) > 1 else changed) if same else Unknown()
    if _set_anew(code, name):
        return Unknown()
    return _of_namespace(code, name, others, steps)


def set_on_self(cls: ast.ClassDef, name: str) -> list[ast.expr | None]:
    found: list[ast.expr | None] = []
    for node in ast.walk(cls):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_self(t, name) for t in targets):
                found.append(None if isinstance(node, ast.AugAssign) else node.value)
            elif any(_is_self(n, name) for t in targets for n in stored(t)):
                found.append(None)
    return found


def _is_self(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value) == "self"


def _set_anew(code: Code, name: str) -> int | None:
    """Returns the first line that assigns to an attribute of this name, of any object."""
    lines = [
        node.lineno
        for node in ast.walk(code.tree)
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
    ]
    return min(lines, default=None)


def _of_namespace(code: Code, name: str, others: Sequence[Code], steps: int) -> Origin:
    """Returns the origin of `cfg.name`: the field of the only class that has it, or the argument of a namespace."""
    classes = [n for n in ast.walk(code.tree) if isinstance(n, ast.ClassDef) and _field(n, name) is not None]
    if len(classes) == 1:
        return _of_field(code, classes[0], name, others, steps)
    made = [
        keyword.value
        for call in code.calls()
        if last_name(call.func) in _NAMESPACES
        for keyword in call.keywords
        if keyword.arg == name
    ]
    return origin_of(code, made[0], others, steps - 1) if len(made) == 1 and not classes else Unknown()


def _of_field(code: Code, cls: ast.ClassDef, name: str, others: Sequence[Code], steps: int) -> Origin:
    """Returns a field's default, unless instances are created with another value; an option if Hugging Face's parser fills the class."""
    field = _field(cls, name)
    if field is not None and any(
        last_name(c.func) == "HfArgumentParser" for one in (code, *others) for c in one.calls()
    ):
        return FromOption(Option(code, field.lineno, (f"--{name}",), field))
    calls = [call for call in code.calls() if last_name(call.func) == cls.name]
    passed = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == name]
    hidden = any(call.args or any(k.arg is None for k in call.keywords) for call in calls)
    if len(passed) == 1:
        return origin_of(code, passed[0], others, steps - 1)
    return Unknown() if passed or hidden or field is None else origin_of(code, field, others, steps - 1)


def _field(cls: ast.ClassDef, name: str) -> ast.expr | None:
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            if isinstance(node.value, ast.Call) and last_name(node.value.func) in ("field", "Field"):
                return next((k.value for k in node.value.keywords if k.arg == "default"), None)
            return node.value
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return node.value
    return None


def _element(code: Code, node: ast.Subscript, steps: int) -> ast.expr | None:
    """Returns the value of a literal key in a dict that is written in this file."""
    if steps == 0 or not isinstance(node.slice, ast.Constant):
        return None
    base: ast.expr | None = node.value
    if isinstance(base, ast.Subscript):
        base = _element(code, base, steps - 1)
    entries = written_dict(code, base) if base is not None else None
    return entries.get(str(node.slice.value)) if entries else None
