"""Reads from source what the names of functions and classes stand for, and where they change."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Methods of models, optimizers and the like: what has them is no data.
_OF_OBJECTS = frozenset(
    [
        "train",
        "eval",
        "step",
        "zero_grad",
        "parameters",
        "named_parameters",
        "state_dict",
        "load_state_dict",
        "backward",
        "modules",
    ]
)
_GROW = frozenset(["append", "extend", "insert", "update", "pop", "add", "remove"])
_OF_MAKING = ("__init__", "__post_init__", "setup", "reset_parameters")


@dataclass(frozen=True, slots=True)
class Binding:
    """A name gets a value, or its value changes in place. `of`: the expressions that decide it, and whether this happens at all."""

    name: str
    of: tuple[ast.expr, ...]
    new: bool


@functools.lru_cache(maxsize=256)
def bindings(within: ast.AST) -> tuple[Binding, ...]:
    """Assignments, loops and changes in place, without those of functions that are defined there."""
    return tuple(
        Binding(name, (*of, *guards), new)
        for node, guards in guarded(within).items()
        for name, of, new in _bound_by(node)
    )


def _bound_by(node: ast.AST) -> Iterator[tuple[str, tuple[ast.expr, ...], bool]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ((name, (node.value,), True) for name in plain_names(target))
            index = (target.slice,) if isinstance(target, ast.Subscript) else ()
            changed = names(target) if isinstance(target, (ast.Subscript, ast.Attribute)) else ()
            yield from ((name, (node.value, *index), False) for name in changed)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from ((name, (node.value,), True) for name in plain_names(node.target))
    elif isinstance(node, ast.AugAssign):
        yield from ((name, (node.value,), False) for name in names(node.target))
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from ((name, (node.iter,), True) for name in names(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from ((name, (node.context_expr,), True) for name in names(node.optional_vars))
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, (node.value,), True
    elif isinstance(node, ast.Call) and changes_its_object(node.func):
        yield from ((name, tuple(node.args), False) for name in names(node.func))


def carried(loop: ast.stmt) -> set[str]:
    """Names that may carry something from one round of the loop to the next: bound more than once, or used before that."""
    lines: dict[str, list[int]] = {}
    for binding in bindings(loop):
        lines.setdefault(binding.name, []).append(min((part.lineno for part in binding.of), default=0))
    early = {
        node.id
        for node in guarded(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno < min(lines.get(node.id, [0]))
    }
    own = {b.name for b in bindings(loop) if any(b.name in names(part) for part in b.of)}
    return early | own | {name for name, of in lines.items() if len(of) > 1}


@functools.lru_cache(maxsize=256)
def guarded(within: ast.AST) -> Mapping[ast.AST, tuple[ast.expr, ...]]:
    """All nodes below this one, with the conditions and iterables below it that decide whether and how often each runs.

    Without what is below functions and classes that are defined there.
    """
    return dict(_guarded(within, (), None))


def _guarded(
    node: ast.AST, guards: tuple[ast.expr, ...], guard: ast.expr | None
) -> Iterator[tuple[ast.AST, tuple[ast.expr, ...]]]:
    blocks = (*node.body, *node.orelse) if isinstance(node, (ast.If, ast.While, ast.For)) else ()
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            of_child = (*guards, guard) if guard is not None and child in blocks else guards
            yield child, of_child
            yield from _guarded(
                child, of_child, child.iter if isinstance(child, ast.For) else getattr(child, "test", None)
            )


def statement_at(function: ast.AST, line: int) -> ast.stmt | None:
    """The innermost statement of a function at a line."""
    found = [node for node in guarded(function) if isinstance(node, ast.stmt) and covers(node, line)]
    return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def computed(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that a statement computes; of a block, those of its head alone."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in statement.items]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    parts = [getattr(statement, part, None) for part in ("iter", "test", "value")]
    parts += [statement.target] if isinstance(statement, ast.AugAssign) else []
    return [part for part in (*parts, *(t for t in targets if not plain_names(t))) if part is not None]


@functools.lru_cache(maxsize=4096)
def used_as_object(function: ast.AST, name: str) -> bool:
    """True for a name that is called, trained, made of a class, or on which methods of models and optimizers are called."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    of_name = [
        last_name(f)
        for f in calls
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == name
    ]
    called = any(isinstance(f, ast.Name) and f.id == name for f in calls)
    if called or any(method in _OF_OBJECTS or method.endswith("_") for method in of_name):
        return True
    return _is_trained(function, name) or any(
        makes_object(part) for binding in bindings(function) if binding.name == name for part in binding.of
    )


def _is_trained(function: ast.AST, name: str) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and "optim" in ast.unparse(node.func))
    return any(name in names(part) for call in calls for part in call.args)


def makes_object(value: ast.expr) -> bool:
    """True for an expression that makes an object of a class, or a tensor that is trained."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    made = {last_name(call.func) for call in calls}
    trained = "requires_grad_" in made or any(k.arg == "requires_grad" for call in calls for k in call.keywords)
    borrowed = any(isinstance(node, ast.Attribute) and node.attr in ("weight", "bias") for node in ast.walk(value))
    return trained or borrowed or any(name[:1].isupper() for name in made)


@functools.lru_cache(maxsize=1024)
def is_kept(around: ast.ClassDef, name: str) -> bool:
    """True for an attribute that is set when the object is made, is no module or parameter, and never changes."""
    values = list(_of_class(around, name))
    for method in methods(around).values():
        making = method.name in _OF_MAKING or method.name.lstrip("_").startswith(("init", "build"))
        for node in guarded(method):
            if isinstance(node, ast.Call):
                if is_of_self(node.func, name) or _changes(node.func, name):
                    return False
                if last_name(node.func) == "register_buffer" and len(node.args) > 1:
                    [first, value, *_] = node.args
                    values += [value] if isinstance(first, ast.Constant) and first.value == name else []
            for target, value in _set_by(node):
                if isinstance(target, ast.Subscript) and is_of_self(target.value, name):
                    return False
                if is_of_self(target, name):
                    if not making:
                        return False
                    values.append(value)
    return bool(values) and not any(map(makes_object, values))


@functools.lru_cache(maxsize=1024)
def is_set_once(around: ast.ClassDef, name: str) -> bool:
    """True for an attribute that only what makes the object sets: a layer, a parameter or data."""
    made = any(_of_class(around, name))
    for method in methods(around).values():
        making = method.name in _OF_MAKING or method.name.lstrip("_").startswith(("init", "build"))
        for node in guarded(method):
            changed = isinstance(node, ast.Call) and _changes(node.func, name)
            set_here = any(
                is_of_self(target.value if isinstance(target, ast.Subscript) else target, name)
                for target, _ in _set_by(node)
            )
            if (changed or set_here) and not making:
                return False
            made = made or set_here
    return made


@functools.lru_cache(maxsize=1024)
def touches(around: ast.ClassDef, name: str) -> bool:
    """True if a class sets or changes an attribute."""
    return any(_of_class(around, name)) or any(
        (isinstance(node, ast.Call) and _changes(node.func, name))
        or (isinstance(node, ast.Call) and last_name(node.func) == "register_buffer" and _names_constant(node, name))
        or any(is_of_self(t.value if isinstance(t, ast.Subscript) else t, name) for t, _ in _set_by(node))
        for method in methods(around).values()
        for node in guarded(method)
    )


def _names_constant(call: ast.Call, name: str) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == name


def _of_class(around: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """Values that the body of a class gives to a name; of a field of a dataclass without a default, the annotation."""
    for node in around.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield getattr(node, "value", None) or node.annotation  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=64)
def changed_on_objects(tree: ast.AST) -> frozenset[str]:
    """Attributes that a file changes on other objects than `self`: `data.epoch = 3`, `data.items.append(new)`, `setattr(...)`."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_in_place(node.func.attr):
            found |= _attribute(node.func.value)
        elif isinstance(node, ast.Call) and last_name(node.func) == "setattr" and len(node.args) > 1:
            name = node.args[1]
            found |= {str(name.value)} if isinstance(name, ast.Constant) else set()
        else:
            for target, _ in _set_by(node):
                found |= _attribute(target.value if isinstance(target, ast.Subscript) else target)
    return frozenset(found)


def _attribute(node: ast.expr) -> set[str]:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return {node.attr} if isinstance(node, ast.Attribute) and not own else set()


@functools.lru_cache(maxsize=64)
def changed_globals(tree: ast.AST) -> frozenset[str]:
    """Names of a file that its functions assign to by `global`, or whose value they change in place."""
    found = set[str]()
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        bound = bindings(function)
        local = {b.name for b in bound if b.new} | {*parameters(function)}
        found |= {name for node in guarded(function) if isinstance(node, ast.Global) for name in node.names}
        found |= {b.name for b in bound if not b.new and b.name not in local}
    return frozenset(found)


def _changes(function: ast.expr, name: str) -> bool:
    """True for `self.name.pop()`, `self.name.mul_(0.9)`, `self.name.train()` and the like."""
    of = function.value if isinstance(function, ast.Attribute) else function
    called = last_name(function)
    return is_of_self(of, name) and (called.endswith("_") or called in _GROW | _OF_OBJECTS)


def changes_its_object(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, (ast.Name, ast.Subscript)):
        return False
    return is_in_place(function.attr)


def is_in_place(method: str) -> bool:
    """True for methods that change their object, by torch's naming and by those of lists, sets and dictionaries."""
    return method.endswith("_") or method in _GROW


def _set_by(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            each = isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(parts) > 1
            values = node.value.elts if isinstance(node.value, ast.Tuple) and each else [node.value] * len(parts)
            yield from zip(parts, values, strict=True)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
        yield node.target, node.value


def is_of_self(node: ast.expr, name: str) -> bool:
    of = node.value if isinstance(node, ast.Attribute) and node.attr == name else None
    return isinstance(of, ast.Name) and of.id == "self"


def plain_names(target: ast.expr) -> set[str]:
    """Names that an assignment to this target binds."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for part in target.elts for name in plain_names(part)}
    if isinstance(target, ast.Starred):
        return plain_names(target.value)
    return {target.id} if isinstance(target, ast.Name) else set()


def parameters(function: ast.AST) -> list[str]:
    arguments = getattr(function, "args", None)
    if arguments is None:
        return []
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [a.arg for a in every if a is not None]


def names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def class_around(tree: ast.AST, function: ast.AST) -> ast.ClassDef | None:
    return next((node for node in classes(tree) if function in node.body), None)


def class_named(tree: ast.AST, name: str) -> ast.ClassDef | None:
    return next((node for node in classes(tree) if node.name == name), None)


def class_of(around: ast.ClassDef, node: ast.expr) -> str:
    """The class of which an attribute of this class is made (`self.conv`: Conv2d); empty if that is not certain."""
    set_ = (pair for method in methods(around).values() for part in guarded(method) for pair in _set_by(part))
    made = {
        last_name(v.func)
        for t, v in set_
        if isinstance(v, ast.Call) and is_of_self(t, last_name(node)) and is_of_self(node, last_name(node))
    }
    return made.pop() if len(made) == 1 else ""


def methods(around: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in around.body if isinstance(node, ast.FunctionDef)}


@functools.lru_cache(maxsize=64)
def classes(tree: ast.AST) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@functools.lru_cache(maxsize=64)
def definitions(tree: ast.AST) -> Mapping[str, ast.AST]:
    """A file's functions by name."""
    return {node.name: node for node in getattr(tree, "body", ()) if isinstance(node, FUNCTIONS)}


@functools.lru_cache(maxsize=64)
def imports(tree: ast.AST) -> Mapping[str, str]:
    """Full names by the names as which a file imports them."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
    return found
