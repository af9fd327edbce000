"""Finds attention that a function computes in parts: a product of queries and keys, its softmax, and a product of that with values."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.model.recording import Source

_PRODUCTS = frozenset(("matmul", "bmm", "baddbmm", "einsum"))
_SOFTMAX = re.compile(r"soft_?max|^attend$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AttentionInParts:
    """`first` and `last`: lines of the two products. `keeps_weights`: the function also returns or keeps the softmax's result."""

    first: int
    last: int
    keeps_weights: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """What an expression carries: scores (a product), or weights (a softmax of scores). `line`: of the product."""

    kind: Literal["scores", "weights"]
    line: int


def attention_in_parts(sources: Sequence[Source], file: str, line: int) -> AttentionInParts | None:
    """Attention in the function around this line; None if there is none, or if the function's source is not known."""
    function = function_at(sources, file, line)
    return None if function is None else _attention_of(function)


@functools.lru_cache(maxsize=64)
def _attention_of(function: ast.AST) -> AttentionInParts | None:
    reader = _Reader()
    reader.generic_visit(function)
    return None if reader.found is None else AttentionInParts(*reader.found, reader.keeps_weights)


class _Reader(ast.NodeVisitor):
    """Follows scores and weights through a function's names, statement by statement."""

    def __init__(self) -> None:
        self.found: tuple[int, int] | None = None  # lines of the two products
        self.keeps_weights = False
        self._names: dict[str, _Part] = {}

    def visit_Assign(self, node: ast.Assign) -> None:
        part = self._part(node.value)
        for target in node.targets:
            self._assign(target, part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._part(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._part(node.value)  # `scores += bias`, and masks in place, leave scores what they are

    def visit_Expr(self, node: ast.Expr) -> None:
        self._part(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        for value in _elements(node.value):
            part = self._part(value)
            self.keeps_weights |= part is not None and part.kind == "weights"

    def _assign(self, target: ast.expr, part: _Part | None) -> None:
        if isinstance(target, ast.Name):
            self._names.pop(target.id, None)
            if part is not None:
                self._names[target.id] = part
        elif isinstance(target, ast.Attribute):
            self.keeps_weights |= part is not None and part.kind == "weights"

    def _part(self, node: ast.AST) -> _Part | None:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        parts = [part for child in ast.iter_child_nodes(node) if (part := self._part(child)) is not None]
        weights = next((part for part in parts if part.kind == "weights"), None)
        if isinstance(node, (ast.BinOp, ast.Call)) and _is_product(node):
            if weights is not None:
                self.found = self.found or (weights.line, node.end_lineno or node.lineno)
                return None
            return _Part("scores", node.lineno)
        if weights is None and parts and isinstance(node, ast.Call) and _SOFTMAX.search(_called(node)):
            return _Part("weights", parts[0].line)
        return weights or next(iter(parts), None)


def _elements(value: ast.expr | None) -> list[ast.expr]:
    if value is None:
        return []
    return value.elts if isinstance(value, ast.Tuple) else [value]


def _is_product(node: ast.BinOp | ast.Call) -> bool:
    return isinstance(node.op, ast.MatMult) if isinstance(node, ast.BinOp) else _called(node) in _PRODUCTS


def _called(call: ast.Call) -> str:
    """The last name of what is called: `softmax` for `F.softmax(x)` and `x.softmax(-1)`, `Softmax` for `nn.Softmax(-1)(x)`."""
    function = call.func
    if isinstance(function, ast.Call):
        return _called(function)
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
