"""Measures linear operations in an expensive order in the timed backward passes, and finds the lines that compute them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    Frames,
    SeenStack,
    inner,
    line_of,
    starts_backward,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import ReorderedOperations
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ORDERS_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

PRODUCTS = "products"  # a kind of `LinearOrder`

_MODULES = "/torch/nn/modules/"
_MULTIPLIES = frozenset(("baddbmm", "bmm", "einsum", "matmul", "mm"))


def order_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found, known = Measured(), facts_by_rank(recording)
    for rank, steps in steady.items():
        timed, backward_s = known.get(rank, RankFacts()).get("backward_nodes"), steps.per_step("backward")
        if timed is None or not timed["ns"] or backward_s is None or "orders" not in timed:
            found.missing[STEP_ORDERS_S, rank] = "no backward pass was timed node by node"
        else:
            found[STEP_ORDERS_S, rank] = max(0, sum(each["ns"] for each in timed["orders"])) / timed["ns"] * backward_s
    return found


def reordered(recording: Recording) -> ReorderedOperations | None:
    """The operations whose other order spares most, over all ranks; None where no recorder saw any."""
    timed = (nodes for facts in recording.facts.values() if (nodes := facts.get("backward_nodes")) is not None)
    order = max(
        (each for nodes in timed for each in nodes.get("orders", ())), key=lambda each: each["ns"], default=None
    )
    if order is None:
        return None
    layer = order["layer"].rpartition(".")[0]
    parts = frozenset(part for part in layer.split(".") if part.isidentifier())
    calls = []
    for _, _, row, count in step_rows(recording):
        of_products = order["kind"] == PRODUCTS
        lines = _multiplying(row, recording.sources) if of_products else _calling(row, recording.sources, parts)
        calls += [(line, "", count) for line in lines]
    return ReorderedOperations(order["kind"], layer, longest(recording, calls))


def _multiplying(row: SeenStack, sources: tuple[Source, ...]) -> Iterator[CodeLine]:
    """The user's innermost line, if it multiplies matrices itself."""
    for frame in _forward(row):
        if _MODULES in frame["file"]:
            return
        if is_user_file(frame["file"]):
            if _calls(sources, line_of(frame), _MULTIPLIES):
                yield line_of(frame)
            return


def _calling(row: SeenStack, sources: tuple[Source, ...], parts: frozenset[str]) -> Iterator[CodeLine]:
    """The innermost line that calls a layer, or a part of the model around it, by one of these names."""
    inside = False
    for frame in _forward(row):
        inside = inside or _MODULES in frame["file"]
        if inside and is_user_file(frame["file"]) and _calls(sources, line_of(frame), parts):
            yield line_of(frame)
            return


def _forward(row: SeenStack) -> Frames:
    frames = inner(row["frames"])
    return () if any(starts_backward(frame) for frame in frames) else frames


def _calls(sources: tuple[Source, ...], place: CodeLine, names: frozenset[str]) -> bool:
    function = function_at(sources, place[0], place[1])
    return function is not None and _calls_at(function, place[1], names)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _calls_at(function: ast.AST, line: int, names: frozenset[str]) -> bool:
    products = names is _MULTIPLIES
    return any(
        name_of(node) in names or (products and isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        for node in ast.walk(function)
        if isinstance(node, (ast.Call, ast.BinOp)) and covers(node, line)
    )
