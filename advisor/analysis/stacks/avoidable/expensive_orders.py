"""Measures linear operations in an expensive order in the timed backward passes, and finds the lines that compute them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.stacks.layer_calls import layer_line
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at
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
    calls = []
    for _, _, row, count in step_rows(recording):
        of_products, sources = order["kind"] == "products", recording.sources
        line = _multiplying(row, sources) if of_products else layer_line(row, sources, order["layer"])
        if line is not None:
            calls.append((line, "", count))
    return ReorderedOperations(order["kind"], order["layer"].rpartition(".")[0], longest(recording, calls))


def _multiplying(row: SeenStack, sources: tuple[Source, ...]) -> CodeLine | None:
    """The user's innermost line, if it multiplies matrices itself."""
    for frame in before_backward(row):
        if _MODULES in frame["file"]:
            return None
        if is_user_file(frame["file"]):
            function = function_at(sources, frame["file"], frame["line"])
            return line_of(frame) if function is not None and _multiplies(function, frame["line"]) else None
    return None


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _multiplies(function: ast.AST, line: int) -> bool:
    return any(
        name_of(node) in _MULTIPLIES or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        for node in ast.walk(function)
        if isinstance(node, (ast.Call, ast.BinOp)) and covers(node, line)
    )
