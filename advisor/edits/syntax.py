"""One file of the job's code as a syntax tree whose nodes know their parents."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from rn50_advisor.advisor.model.job_changes import Value

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef | ast.Module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# Real code is not nested this deeply; libcst's parser crashes the process at a few thousand levels.
_NESTING_MAX = 100


class Code:
    """A parsed file. Nodes are compared by identity and belong to this file alone."""

    def __init__(self, path: str, text: str, tree: ast.Module) -> None:
        """Use `parse_code` instead."""
        self.path = path
        self.text = text
        self.tree = tree
        self._calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self._parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes that enclose a node, innermost first."""
        found = self.parent(node)
        while found is not None:
            yield found
            found = self.parent(found)

    def functions_around(self, node: ast.AST) -> list[Function]:
        return [n for n in self.around(node) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((n for n in self.around(node) if isinstance(n, ast.ClassDef)), None)

    def function_at(self, line: int) -> Function | None:
        """The innermost function around a line."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= line <= (node.end_lineno or 0)
        ]
        return max(around, key=lambda node: node.lineno, default=None)

    def calls(self) -> list[ast.Call]:
        return self._calls

    def words(self, node: ast.AST) -> str:
        """Returns a node as source text on one line, at most 60 characters."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:59] + "…"


@functools.lru_cache(maxsize=32)
def parse_code(path: str, text: str) -> Code | None:
    """Parses a file; None if it is not Python, has unusual line ends or is nested too deeply."""
    plain = text.replace("\r\n", "\n")
    if "\r" in plain or "\f" in plain or "\0" in plain:
        return None  # ast and libcst would count lines differently
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Code(path, text, tree) if _depth_within(tree, _NESTING_MAX) else None


def inside(scope: Scope) -> Iterator[ast.AST]:
    """Yields all nodes of a scope except those inside its functions and classes."""
    left: list[ast.AST] = list(scope.body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, _SCOPES):
            left.extend(ast.iter_child_nodes(node))


def is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool, str, type(None)))


def literal(node: ast.expr) -> Value:
    """Returns the value of a node for which `is_literal` is true."""
    value: Value = ast.literal_eval(node)
    return value


def last_name(node: ast.expr) -> str | None:
    """Returns the last part of a name: `DataLoader` of `torch.utils.data.DataLoader`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def dotted_name(node: ast.expr) -> str:
    """Returns `torch.utils.data.DataLoader`, and of what is not made of names alone (a call, an index) the last name: no other values."""
    parts, owner = [last_name(node) or ""], node
    while isinstance(owner, ast.Attribute):
        owner = owner.value
        parts.append(last_name(owner) or "")
    return ".".join(reversed(parts)) if all(parts) else parts[0]


def _depth_within(tree: ast.AST, most: int) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(most):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False
