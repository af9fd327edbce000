"""Finds the values that a file binds to its names: assignments of a scope, dicts, parameters."""

from __future__ import annotations

import ast

from rn50_advisor.advisor.edits.syntax import Code, Function, Scope, inside, last_name

_NAMES_FOLLOWED_MAX = 6  # names assigned from other names
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def assignments(scope: Scope, name: str) -> list[ast.expr | None]:
    """The expressions that a scope assigns to a name; None for each other kind of binding (a loop, unpacking, `+=`, an
    import, a `def`).
    """
    found: list[ast.expr | None] = []
    for node in inside(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            plain = [t for t in targets if isinstance(t, ast.Name) and t.id == name]
            if plain and not (isinstance(node, ast.AnnAssign) and node.value is None):
                found.append(node.value)
            elif any(isinstance(n, ast.Name) and n.id == name for t in targets for n in stored(t)) and not plain:
                found.append(None)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found += [None for a in node.names if (a.asname or a.name.partition(".")[0]) == name]
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.comprehension)):
            found += [None for n in stored(node.target) if isinstance(n, ast.Name) and n.id == name]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            found += [None for n in stored(node.optional_vars) if isinstance(n, ast.Name) and n.id == name]
        elif name in _named(node):
            found.append(None)
    return found


def _named(node: ast.AST) -> tuple[str | None, ...]:
    """Names bound by `def`, `class`, `except … as` and `case`."""
    if isinstance(node, (*_DEFINING, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return (node.name,)
    return (node.rest,) if isinstance(node, ast.MatchMapping) else ()


def bound_otherwise(code: Code, node: ast.Name) -> bool:
    """True if the value comes from a lambda, an enclosing class body, or a function that declares the name `global` or `nonlocal`."""
    if any(isinstance(n, (ast.Global, ast.Nonlocal)) and node.id in n.names for n in ast.walk(code.tree)):
        return True
    for around in code.around(node):
        if isinstance(around, ast.Lambda) and node.id in parameters(around):
            return True
        if isinstance(around, ast.ClassDef) and assignments(around, node.id):
            return True
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
    return False


def stored(target: ast.expr) -> list[ast.AST]:
    return [n for n in ast.walk(target) if isinstance(getattr(n, "ctx", None), ast.Store)]


def parameters(function: Function | ast.Lambda) -> list[str]:
    a = function.args
    return [parameter.arg for parameter in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def written_dict(code: Code, node: ast.expr) -> dict[str, ast.expr] | None:
    """Returns the entries of `{"a": 1}` or `dict(a=1)`, here or as the only value of a name that is not changed later; else None."""
    if isinstance(node, ast.Name):
        scopes = [*code.functions_around(node), code.tree]
        if bound_otherwise(code, node) or any(node.id in parameters(f) for f in code.functions_around(node)):
            return None
        assigned = next((found for scope in scopes if (found := assignments(scope, node.id))), [])
        changed = any(_changes(n, node.id) for n in ast.walk(code.tree))
        value = assigned[0] if len(assigned) == 1 and not changed else None
        return written_dict(code, value) if value is not None and not isinstance(value, ast.Name) else None
    if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
        return {k.arg: k.value for k in node.keywords if k.arg} if all(k.arg for k in node.keywords) else None
    if not isinstance(node, ast.Dict):
        return None
    keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        return None
    return {str(key): value for key, value in zip(keys, node.values, strict=True)}


def _changes(node: ast.AST, name: str) -> bool:
    """True if a node stores to or deletes `name[…]`, or calls a method that may change it."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return ast.unparse(node.value) == name
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("update", "setdefault", "pop", "clear", "popitem")
        and ast.unparse(node.func.value) == name
    )


def written_as(code: Code, node: ast.expr) -> ast.expr:
    """Returns the expression that a name stands for if it is assigned exactly once, by `name = ...`; otherwise the node itself."""
    for _ in range(_NAMES_FOLLOWED_MAX):
        if not isinstance(node, ast.Name):
            break
        scopes = [*code.functions_around(node), code.tree]
        if bound_otherwise(code, node) or any(node.id in parameters(f) for f in code.functions_around(node)):
            break
        assigned = next((found for scope in scopes if (found := assignments(scope, node.id))), [])
        if len(assigned) != 1 or assigned[0] is None:
            break
        node = assigned[0]
    return node
