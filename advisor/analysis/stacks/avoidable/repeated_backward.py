"""Measures the part of backward passes that goes again through nodes of autograd's graph, which one pass for all losses would not.

Nothing is lost where the job needs the gradients of each pass: where its own lines read `.grad` between the passes, or compute others by
`torch.autograd.grad`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence, Set

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_AGAIN_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.model_documents import RepeatedPasses
from rn50_advisor.probes.documents.rank_documents import RankFacts

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# Time of one written element in multiplications of a matrix product, where no node was timed: between the 10 and 100 that rules take
# for the worst and the best.
_PER_POINT = 30.0


def repeated_pass_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward passes per step."""
    found, known = Measured(), facts_by_rank(recording)
    for rank, steps in steady.items():
        facts = known.get(rank, RankFacts())
        passes, backward_s = facts.get("repeated_passes"), steps.per_step("backward")
        share = None if passes is None else _share(facts, passes, recording.sources)
        if share is not None and backward_s is not None:
            found[STEP_AGAIN_S, rank] = share * backward_s
        else:
            found.missing[STEP_AGAIN_S, rank] = "too few steps, or graphs that are too large to be followed"
    return found


def _share(facts: RankFacts, passes: RepeatedPasses, sources: Sequence[Source]) -> float | None:
    if not passes["again"] or _reads_gradients(sources, passes):
        return 0.0
    timed = facts.get("backward_nodes")
    if timed is not None and timed["ns"] and "again_ns" in timed:
        return timed["again_ns"] / timed["ns"]
    whole, again = (
        products + _PER_POINT * points for products, points in zip(passes["products"], passes["points"], strict=True)
    )
    return again / whole if whole else None


def _reads_gradients(sources: Sequence[Source], passes: RepeatedPasses) -> bool:
    """True if the lines between these passes read gradients; False where the source does not show it."""
    by_file: dict[str, set[int]] = {}
    for each in passes["lines"]:
        by_file.setdefault(each["file"], set()).add(each["line"])
    for file, lines in by_file.items():
        functions = {function_at(sources, file, line) for line in lines}
        for function in functions:
            inside = frozenset(line for line in lines if function is function_at(sources, file, line))
            if function is not None and _reads_between(function, inside):
                return True
    return False


# Cached, since a live job is analysed each second, with the same lines.
@functools.lru_cache(maxsize=256)
def _reads_between(function: ast.AST, lines: Set[int]) -> bool:
    """From the first of these lines to the last, and in the loops around some of them, or the innermost one around all."""
    loops = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and any(covers(node, at) for at in lines)]
    around_all = [loop for loop in loops if all(covers(loop, at) for at in lines)]
    last = max(around_all, key=lambda loop: loop.lineno, default=None)
    spans = [(loop.lineno, loop.end_lineno or 0) for loop in loops if loop not in around_all]
    if len(lines) == 1 and last is not None:
        spans.append((last.lineno, last.end_lineno or 0))
    spans.append((min(lines), max(lines)))
    return any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and any(a <= node.lineno <= b for a, b in spans)
        for node in ast.walk(function)
    )
