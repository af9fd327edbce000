"""Measures linear operations in an expensive order in the timed backward passes, and finds the lines that compute them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from rn50_advisor.advisor.analysis.stacks.layer_calls import layer_line
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at, names_in
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.stack_profiles import CodeLine, SeenStack, line_of
from rn50_advisor.advisor.analysis.stacks.timed_passes import (
    NOT_TIMED,
    before_backward,
    every_timed_pass,
    timed_passes,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import ReorderedOperations
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ORDERS_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_MODULES = "/torch/nn/modules/"
_MULTIPLIES = frozenset(("baddbmm", "bmm", "einsum", "matmul", "mm"))


def order_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found = Measured()
    for rank, timed, each_s in timed_passes(recording, steady):
        if timed is None or "orders" not in timed:
            found.missing[STEP_ORDERS_S, rank] = NOT_TIMED
        else:
            found[STEP_ORDERS_S, rank] = max(0, sum(each["ns"] for each in timed["orders"])) * each_s
    return found


def reordered(recording: Recording) -> ReorderedOperations | None:
    """The operations whose other order spares most, over all ranks; None where no recorder saw any."""
    orders = (each for nodes in every_timed_pass(recording) for each in nodes.get("orders", ()))
    order = max(orders, key=lambda each: each["ns"], default=None)
    if order is None:
        return None
    find = _multiplying if order["kind"] == "products" else functools.partial(_calling, order["layer"])
    found = [
        (line, products, count)
        for _, _, row, count in step_rows(recording)
        for line, products in find(row, recording.sources)
    ]
    most = max((products for _, products, _ in found), default=0)
    calls = ((line, "", count) for line, products, count in found if products == most)
    return ReorderedOperations(order["kind"], order["layer"].rpartition(".")[0], longest(recording, calls))


def _calling(layer: str, row: SeenStack, sources: tuple[Source, ...]) -> Iterator[tuple[CodeLine, int]]:
    line = layer_line(row, sources, layer)
    if line is not None:
        yield line, 0


def _multiplying(row: SeenStack, sources: tuple[Source, ...]) -> Iterator[tuple[CodeLine, int]]:
    """The user's innermost line, if it multiplies matrices itself, and how many products come together there: one or two."""
    for frame in before_backward(row):
        if _MODULES in frame["file"]:
            return
        if is_user_file(frame["file"]):
            function = function_at(sources, frame["file"], frame["line"])
            products = _products(function, frame["line"]) if function is not None else 0
            if products:
                yield line_of(frame), products
            return


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _products(function: ast.AST, line: int) -> int:
    """0 without a product on the line, 2 where one takes what another has given, there or on a line before, else 1."""
    before = (node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno < line)
    given = {name for node in before if _is_product(node.value) for name in names_in(node.targets[0])}
    here = [node for node in ast.walk(function) if _is_product(node) and covers(node, line)]
    taken = (part for each in here for child in ast.iter_child_nodes(each) for part in ast.walk(child))
    return bool(here) + any(_is_product(part) or (isinstance(part, ast.Name) and part.id in given) for part in taken)


def _is_product(node: ast.AST) -> TypeGuard[ast.Call | ast.BinOp]:
    return name_of(node) in _MULTIPLIES or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
