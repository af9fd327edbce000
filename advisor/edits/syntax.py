"""One file of the job's code as a syntax tree that knows who stands around whom."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from rn50_advisor.advisor.model.job_changes import Value

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef | ast.Module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# Real code is not nested so deep; libcst's parser crashes the process at a few thousand levels.
_NESTING_MAX = 100


class Code:
    """A parsed file. Nodes are compared by identity and belong to this file alone."""

    def __init__(self, path: str, text: str, tree: ast.Module) -> None:
        """For `parse_code` only."""
        self.path = path
        self.text = text
        self.tree = tree
        self._calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self._parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that enclose a node, innermost first."""
        found = self.parent(node)
        while found is not None:
            yield found
            found = self.parent(found)

    def functions_around(self, node: ast.AST) -> list[Function]:
        return [n for n in self.around(node) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((n for n in self.around(node) if isinstance(n, ast.ClassDef)), None)

    def calls(self) -> list[ast.Call]:
        return self._calls

    def words(self, node: ast.AST) -> str:
        """A node as one would write it, on one line."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:59] + "…"


@functools.lru_cache(maxsize=32)
def parse_code(path: str, text: str) -> Code | None:
    """The parsed file; None if it is no Python of a kind that people write."""
    plain = text.replace("\r\n", "\n")
    if "\r" in plain or "\f" in plain or "\0" in plain:
        return None  # lines would be counted otherwise here than there
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Code(path, text, tree) if _depth_within(tree, _NESTING_MAX) else None


def inside(scope: Scope) -> Iterator[ast.AST]:
    """All nodes of a scope without those of the functions and classes in it."""
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
    """The value of a node that `is_literal`."""
    value: Value = ast.literal_eval(node)
    return value


def last_name(node: ast.expr) -> str | None:
    """`DataLoader` of `torch.utils.data.DataLoader`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _depth_within(tree: ast.AST, most: int) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(most):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return True
    return False
