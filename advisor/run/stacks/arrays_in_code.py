"""Decides by the code of one file whether a name stands for an array or a tensor, rather than for a list of things."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rn50_advisor.advisor.edits.names import parameters
from rn50_advisor.advisor.edits.syntax import Code, Function, last_name

_STEPS_MAX = 5  # names and calls followed
_LISTS = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp, ast.GeneratorExp, ast.Tuple)
_LISTING = frozenset({"dict", "list", "sorted", "tuple", "set", "zip", "glob", "listdir", "deque", "defaultdict", "split", "splitlines",
                      "tolist", "readlines", "chunk", "unbind", "OrderedDict"})  # fmt: skip
ARRAY_LIBRARIES = frozenset({"torch", "np", "numpy", "th", "jnp"})
_OF_ANYTHING = frozenset(
    {"load", "meshgrid", "where", "nonzero", "split", "array_split", "chunk", "unbind"}
)  # not always of one array
# Methods and attributes that lists do not have.
_METHODS = frozenset({"astype", "bool", "clone", "contiguous", "cpu", "cuda", "detach", "double", "float", "half", "int", "long", "numpy",
                      "permute", "reshape", "to_numpy", "transpose", "unsqueeze", "view"})  # fmt: skip
_ATTRIBUTES = frozenset({"T", "values"})
_ASKED = _METHODS | {"dim", "dtype", "mean", "ndim", "numel", "shape", "size", "std", "T"}
_ANNOTATED = re.compile(r"(torch\.|np\.|numpy\.|npt\.)?(\w*Tensor|ndarray|NDArray)\b")
_ANNOTATED_LIST = re.compile(r"(\w+\.)?([Ll]ist|[Tt]uple|[Dd]ict|Sequence|Iterable|Mapping)\b")


def is_array(code: Code, node: ast.expr) -> bool:
    """True if the code shows that a name, of an object or not, stands for one array; False where it is a list, and where nobody knows."""
    return bool(_made(code, node, _STEPS_MAX))


def _made(code: Code, node: ast.expr, steps: int) -> bool | None:
    """True for an array, False for a list or the like, None if the code does not show it."""
    if steps == 0 or isinstance(node, _LISTS):
        return False if steps else None
    if isinstance(node, ast.Call):
        return _called(code, node, steps - 1)
    if isinstance(node, ast.BinOp):
        return True if _made(code, node.left, steps - 1) or _made(code, node.right, steps - 1) else None
    if isinstance(node, ast.Subscript):
        return _part(code, node, steps - 1)
    if isinstance(node, (ast.Name, ast.Attribute)):
        part = isinstance(node, ast.Attribute) and not _is_self(node.value) and node.attr in _ATTRIBUTES
        return True if part else _named(code, node, steps)
    return None


def _part(code: Code, node: ast.Subscript, steps: int) -> bool | None:
    """A part of an array, and an array of an archive."""
    whole = node.value
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return True if isinstance(whole, ast.Call) and _is_numpys_load(whole) else None
    return _made(code, whole, steps) or None


def _is_numpys_load(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return last_name(call.func) == "load" and isinstance(owner, ast.Name) and owner.id in ("np", "numpy")


def _called(code: Code, call: ast.Call, steps: int) -> bool | None:
    name = last_name(call.func) or ""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    root = owner.value if isinstance(owner, ast.Attribute) and owner.attr == "random" else owner
    if isinstance(root, ast.Name) and root.id in ARRAY_LIBRARIES:
        unknown = name in _OF_ANYTHING or not name.islower()
        return None if unknown and not _is_numpys_load(call) else True
    if name in _LISTING:
        return False
    if owner is None:
        return _returned(code, name, steps)
    return _made(code, owner, steps) if name in ("copy", "to") else True if name in _METHODS else None


def _returned(code: Code, name: str, steps: int) -> bool | None:
    """What a function of the file returns."""
    functions = [f for f in code.tree.body if isinstance(f, ast.FunctionDef) and f.name == name]
    return _agreed(
        _made(code, node.value, steps)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None
    )


def _named(code: Code, node: ast.Name | ast.Attribute, steps: int) -> bool | None:
    found = [_made(code, value, steps - 1) for value in _values(code, node)]
    found += _annotations(code, node)
    if isinstance(node, ast.Name) and (function := _of_parameter(code, node)) is not None:
        found += [_made(code, value, steps - 1) for value in _given(code, function, node.id)]
    if (agreed := _agreed(found)) is not None:
        return agreed
    return True if _is_asked_as_array(code, node) else None


def _agreed(found: Iterator[bool | None] | list[bool | None]) -> bool | None:
    """False if anything is a list; True if anything is an array and nothing is a list."""
    known = [one for one in found if one is not None]
    return all(known) if known else None


def _scope(code: Code, node: ast.expr) -> ast.AST:
    """Where a name is bound: the innermost function around it that binds it, otherwise the file, as for attributes."""
    if isinstance(node, ast.Name):
        for function in code.functions_around(node):
            stores = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            if node.id in parameters(function) or any(n.id == node.id for n in stores):
                return function
    return code.tree


def _values(code: Code, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """What is assigned to the name, also by `with` and to one of several names."""
    text, scope = ast.unparse(node), _scope(code, node)
    for made in ast.walk(scope):
        if isinstance(made, (ast.Assign, ast.AnnAssign)) and made.value is not None:
            targets = made.targets if isinstance(made, ast.Assign) else [made.target]
            if any(ast.unparse(target) == text for target in targets):
                yield made.value
            for target in targets:
                if isinstance(target, ast.Tuple) and isinstance(made.value, ast.Tuple):
                    pairs = zip(target.elts, made.value.elts, strict=False)
                    yield from (value for at, value in pairs if ast.unparse(at) == text)


def _annotations(code: Code, node: ast.Name | ast.Attribute) -> list[bool | None]:
    text, scope = last_name(node), _scope(code, node)
    notes = [n.annotation for n in ast.walk(scope) if isinstance(n, ast.AnnAssign) and last_name(n.target) == text]
    function = _of_parameter(code, node) if isinstance(node, ast.Name) else None
    if function is not None:
        every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        notes += [each.annotation for each in every if each.arg == text and each.annotation is not None]
    texts = [ast.unparse(note).strip("'\"") for note in notes]
    return [True if _ANNOTATED.match(each) else False if _ANNOTATED_LIST.match(each) else None for each in texts]


def _of_parameter(code: Code, node: ast.Name) -> Function | None:
    scope = _scope(code, node)
    known = isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.id in parameters(scope)
    return scope if known else None  # type: ignore[return-value]


def _given(code: Code, function: Function, name: str) -> Iterator[ast.expr]:
    """What the file's calls of a function, or of the class that it sets up, hand over for a parameter."""
    cls = code.class_around(function)
    called = cls.name if cls is not None and function.name == "__init__" else function.name
    names = parameters(function)
    at = names.index(name) - (names[0] in ("self", "cls"))
    for call in code.calls():
        if last_name(call.func) == called and not any(isinstance(argument, ast.Starred) for argument in call.args):
            yield from call.args[at : at + 1]
            yield from (keyword.value for keyword in call.keywords if keyword.arg == name)


def _is_asked_as_array(code: Code, node: ast.Name | ast.Attribute) -> bool:
    """True if the code asks it for what lists do not have, or takes a place along several axes."""
    text = ast.unparse(node)
    for around in ast.walk(_scope(code, node)):
        asked = isinstance(around, ast.Attribute) and around.attr in _ASKED
        axes = isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Tuple) and bool(around.slice.elts)
        if (asked or axes) and ast.unparse(around.value) == text:  # type: ignore[attr-defined]
            return True
    return False


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
