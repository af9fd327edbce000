"""Measures parts of the backward pass on CPUs that recorders timed node by node, and finds the user's lines that index.

The parts are: what is written for parts of a tensor taken or set one by one, beyond writing it once; adding up the gradients of rows taken
by a tensor of indices; positions whose targets the loss ignores; rows that a later selection leaves out. Nodes have no lines; stack samples
and the source have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.source.indexed_source import part_line, takes_repeated_rows, takes_rows
from rn50_advisor.advisor.analysis.stacks.source.selected_source import selecting_line
from rn50_advisor.advisor.analysis.stacks.stack_profiles import CodeLine, SeenStack, line_of
from rn50_advisor.advisor.analysis.stacks.timed_passes import (
    NOT_TIMED,
    before_backward,
    every_timed_pass,
    timed_passes,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_ELEMENTARY_S,
    STEP_IGNORED_S,
    STEP_PARAMETRIZED_S,
    STEP_PARTS_S,
    STEP_REPEATED_ROWS_S,
    STEP_ROWS_S,
    STEP_UNSELECTED_S,
    STEP_WEIGHT_COMPUTATIONS,
)
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

Indexing = Literal["parts", "rows"]

_MODULES, _LINEAR = "/torch/nn/modules/", "/torch/nn/modules/linear.py"
_ROW_BY_ROW = ("/module.py", "/container.py", "/linear.py", "/activation.py", "/normalization.py", "/dropout.py")
# Names of nodes, before `Backward0`.
_ROWS = re.compile("Index")
# Torch's parametrizations, with the operations of which one computes a weight.
_PARAMETRIZATIONS = {
    "_Orthogonal": re.compile("LinalgHouseholderProduct|LinalgMatrixExp|LinalgSolveEx"),
    "_WeightNorm": re.compile("WeightNormInterface"),
}
_PARAMETRIZING = re.compile("|".join(kinds.pattern for kinds in _PARAMETRIZATIONS.values()))
_ELEMENTARY = re.compile(
    r"Abs|Add|Amax|Cdist|Cholesky|Clamp|DiagEmbed|Diagonal|Div|Erf|EuclideanDist|Exp|Expand|Gather|Hardtanh|LinalgCholeskyEx|LinalgSolveTriangular"
    r"|LinalgVectorNorm|Log|Log1P|LogSoftmax|Max|Maximum|Mean|Mul|Neg|Norm|Pow|Reciprocal|Rsqrt|Sigmoid|Softplus|Sort|Sqrt|Square|Std|StdMean|Sub"
    r"|Sum|Tanh|TriangularSolve|Tril|Var|VarMean|Where"
)


_MEASURES = (
    STEP_PARTS_S,
    STEP_ROWS_S,
    STEP_ELEMENTARY_S,
    STEP_IGNORED_S,
    STEP_UNSELECTED_S,
    STEP_PARAMETRIZED_S,
    STEP_REPEATED_ROWS_S,
    STEP_WEIGHT_COMPUTATIONS,
)
_BY_NODES = (
    (STEP_IGNORED_S, "ignored_ns"),
    (STEP_UNSELECTED_S, "unselected_ns"),
    (STEP_REPEATED_ROWS_S, "repeated_rows_ns"),
)


def timed_backward_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found, known, on_gpu = Measured(), facts_by_rank(recording), ranks_on_gpus(recording)
    for rank, timed, each_s in timed_passes(recording, steady):
        if timed is None:
            why = "on a GPU" if rank in on_gpu else "too few steps, or a graph that is too large"
            for measure in _MEASURES:
                found.missing[measure, rank] = f"{NOT_TIMED}: {why}"
            continue
        backward_s = each_s * timed["ns"]
        found[STEP_PARTS_S, rank] = _parts(timed) * backward_s
        found[STEP_ROWS_S, rank] = _of(timed, _ROWS) * backward_s
        found[STEP_PARAMETRIZED_S, rank] = _of(timed, _PARAMETRIZING) * backward_s
        found[STEP_ELEMENTARY_S, rank] = _of(timed, _ELEMENTARY) * backward_s
        computed = _weight_computations(timed, known.get(rank, RankFacts()))
        if computed is None:
            found.missing[STEP_WEIGHT_COMPUTATIONS, rank] = (
                "no parametrization among the model's layers, or not of each"
            )
        else:
            found[STEP_WEIGHT_COMPUTATIONS, rank] = computed
        for measure, key in _BY_NODES:
            if key in timed:
                found[measure, rank] = timed[key] * each_s  # type: ignore[literal-required]
            else:
                found.missing[measure, rank] = "an older recorder did not see it"
    return found


def indexed_lines(recording: Recording, kind: Indexing) -> tuple[HotLine, ...]:
    """The lines of the steps' own code that index so, over all ranks, the longest first. Lines of parts have the samples of their loop.

    Empty where no backward pass was timed, as on GPUs: nobody would ask for them.
    """
    if not every_timed_pass(recording):
        return ()
    found = _part if kind == "parts" else _taken
    rows = ((found(row, recording.sources), count) for _, _, row, count in step_rows(recording))
    return longest(recording, ((line, "", count) for line, count in rows if line is not None))


def selecting_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines that take rows of what a call has returned, over all ranks, by the samples of these calls, the longest first.

    Empty where no recorder saw rows left out: nobody would ask for them.
    """
    if not any(nodes.get("unselected_ns") for nodes in every_timed_pass(recording)):
        return ()
    calls = []
    for _, _, row, count in step_rows(recording):
        if _mixes_rows(row):
            continue
        for file, line, function in _users(row):
            found = selecting_line(recording.sources, file, line)
            if found is not None:
                calls.append(((file, found, function), "", count))
                break
    return longest(recording, calls)


def repeating_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines that call a linear layer on rows that they or lines before have joined or repeated, over all ranks, the longest first.

    Empty where no recorder saw such rows: nobody would ask for them.
    """
    if not any(nodes.get("repeated_rows_ns") for nodes in every_timed_pass(recording)):
        return ()
    calls = []
    for _, _, row, count in step_rows(recording):
        linear = any(frame["file"].endswith(_LINEAR) for frame in row["frames"])
        for file, line, function in _users(row) if linear else ():
            if takes_repeated_rows(recording.sources, file, line):
                calls.append(((file, line, function), "", count))
                break
    return longest(recording, calls)


def _mixes_rows(row: SeenStack) -> bool:
    """True in torch's layers that compute each row from others, too."""
    modules = (frame for frame in row["frames"] if _MODULES in frame["file"])
    return any(
        not frame["file"].endswith(_ROW_BY_ROW) or frame["function"].startswith("MultiheadAttention.")
        for frame in modules
    )


def _parts(timed: BackwardNodeTimes) -> float:
    """Share of the passes that is spent on more than writing each gradient once."""
    spared = (each["ns"] * (1.0 - each["needed"] / each["written"]) for each in timed["classes"] if each["written"])
    return sum(spared) / timed["ns"]


def _of(timed: BackwardNodeTimes, kinds: re.Pattern[str]) -> float:
    """Share of the passes in nodes of these operations."""
    of = (each["ns"] for each in timed["classes"] if kinds.fullmatch(each["name"].partition("Backward")[0]))
    return sum(of) / timed["ns"]


def _weight_computations(timed: BackwardNodeTimes, facts: RankFacts) -> float | None:
    """How often a pass computed each parametrized weight; None if not all parametrizations are layers, as with the older functions."""
    layers = facts["model"]["layers"] if "model" in facts else {}
    computed = weights = 0.0
    for layer, operations in _PARAMETRIZATIONS.items():
        of = [each["count"] for each in timed["classes"] if operations.fullmatch(each["name"].partition("Backward")[0])]
        if of and not layers.get(layer):
            return None
        if of:
            computed, weights = computed + max(of) / timed["passes"], weights + layers[layer]
    return computed / weights if weights else None


def _part(row: SeenStack, sources: tuple[Source, ...]) -> CodeLine | None:
    for file, line, function in _users(row):
        found = part_line(sources, file, line)
        if found is not None:
            return file, found, function
    return None


def _taken(row: SeenStack, sources: tuple[Source, ...]) -> CodeLine | None:
    """The line that a stack ends in, for indexing leaves no frame of its own."""
    frame = row["frames"][0]
    own = is_user_file(frame["file"]) and takes_rows(sources, frame["file"], frame["line"])
    return line_of(frame) if own else None


def _users(row: SeenStack) -> Iterator[CodeLine]:
    """The user's frames, innermost first; none of a backward pass."""
    yield from (line_of(f) for f in before_backward(row) if is_user_file(f["file"]))
