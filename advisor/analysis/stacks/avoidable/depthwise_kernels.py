"""Measures convolutions of single channels with large kernels in the timed backward passes, and finds the lines that call long ones."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.stacks.layer_calls import layer_line
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LongKernel
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_DEPTHWISE_S, STEP_LONG_KERNELS_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes, DepthwiseKernel
from rn50_advisor.probes.documents.rank_documents import RankFacts

# Of a kernel's numbers, by its dimensions: smaller ones are about as fast in the other form.
_LARGE = {1: 64, 2: 25}
_MEASURES = {1: STEP_LONG_KERNELS_S, 2: STEP_DEPTHWISE_S}


def depthwise_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found, known = Measured(), facts_by_rank(recording)
    for rank, steps in steady.items():
        timed, backward_s = known.get(rank, RankFacts()).get("backward_nodes"), steps.per_step("backward")
        for dims, measure in _MEASURES.items():
            if timed is None or not timed["ns"] or backward_s is None or "depthwise" not in timed:
                found.missing[measure, rank] = "no backward pass was timed node by node"
            else:
                found[measure, rank] = sum(each["ns"] for each in _large(timed, dims)) / timed["ns"] * backward_s
    return found


def longest_kernel(recording: Recording) -> LongKernel | None:
    """The long kernel with most of the time, over all ranks; None where no recorder saw one."""
    every = [nodes for facts in recording.facts.values() if (nodes := facts.get("backward_nodes")) is not None]
    kernels = [each for nodes in every for each in _large(nodes, 1)]
    if not kernels:
        return None
    kernel = max(kernels, key=lambda each: each["ns"])
    rows = ((layer_line(row, recording.sources, kernel["layer"]), count) for _, _, row, count in step_rows(recording))
    return LongKernel(
        kernel["size"], longest(recording, ((line, "", count) for line, count in rows if line is not None))
    )


def _large(nodes: BackwardNodeTimes, dims: int) -> list[DepthwiseKernel]:
    return [each for each in nodes.get("depthwise", ()) if each["dims"] == dims and each["size"] >= _LARGE[dims]]
