"""Measures convolutions of single channels or pixels in the timed backward passes, and finds the lines that call long kernels."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.analysis.stacks.layer_calls import layer_line
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.timed_passes import NOT_TIMED, every_timed_pass, timed_passes
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LongKernel
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_DEPTHWISE_S, STEP_LONG_KERNELS_S, STEP_PIXELWISE_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes, ConvolutionKernel

_SEQUENCES, _IMAGES = 1, 2  # dimensions
# Numbers of a kernel for single channels: smaller ones are about as fast in the other form.
_LARGE = {_SEQUENCES: 64, _IMAGES: 25}


def kernel_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found = Measured()
    for rank, timed, each_s in timed_passes(recording, steady):
        if timed is None or "kernels" not in timed:
            for measure in (STEP_DEPTHWISE_S, STEP_LONG_KERNELS_S, STEP_PIXELWISE_S):
                found.missing[measure, rank] = NOT_TIMED
            continue
        pixels = [each for each in timed["kernels"] if each["dims"] == _IMAGES and not each["single"]]
        for measure, kernels in (
            (STEP_DEPTHWISE_S, _large(timed, _IMAGES)),
            (STEP_LONG_KERNELS_S, _large(timed, _SEQUENCES)),
            (STEP_PIXELWISE_S, pixels),
        ):
            found[measure, rank] = sum(each["ns"] for each in kernels) * each_s
    return found


def longest_kernel(recording: Recording) -> LongKernel | None:
    """The long kernel with most of the time, over all ranks; None where no recorder saw one."""
    kernels = [each for nodes in every_timed_pass(recording) for each in _large(nodes, _SEQUENCES)]
    if not kernels:
        return None
    kernel = max(kernels, key=lambda each: each["ns"])
    rows = ((layer_line(row, recording.sources, kernel["layer"]), count) for _, _, row, count in step_rows(recording))
    return LongKernel(
        kernel["size"], longest(recording, ((line, "", count) for line, count in rows if line is not None))
    )


def _large(nodes: BackwardNodeTimes, dims: int) -> list[ConvolutionKernel]:
    kernels = (each for each in nodes.get("kernels", ()) if each["single"] and each["dims"] == dims)
    return [each for each in kernels if each["size"] >= _LARGE[dims]]
