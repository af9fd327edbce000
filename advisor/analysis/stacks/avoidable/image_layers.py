"""Measures layers of images on CPUs: pooling and resizing by stack samples of the forward pass, convolutions by these and by timed nodes.

How long such layers take depends on the memory format of the images: torch computes several channels at once where these lie side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.loop_lines import profiled_values, samples_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    Frames,
    called,
    in_forward,
    inner,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.stacks.timed_passes import NOT_TIMED, timed_passes
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_CONVOLUTIONS_S, STEP_POOLING_S
from rn50_advisor.advisor.model.recording import Recording

_CONVOLUTIONS = "/torch/nn/modules/conv.py"
_FUNCTIONAL, _POOLING = "/torch/nn/functional.py", "/torch/nn/modules/pooling.py"
# Functions of torch.nn.functional; average pooling has none, and shows as the module that calls it (before Python 3.11 without its class).
_FUNCTIONS = {"_max_pool2d", "max_pool2d_with_indices"}
# Called by a layer: what a script resizes itself may be the images that it gives to the model, whose format the model does not change.
_RESIZING, _RESIZERS = {"interpolate", "upsample"}, "/torch/nn/modules/upsampling.py"
_MODULE = re.compile(r"(Max|Avg)Pool2d\.forward")
_CONVOLUTION_NODE = "ConvolutionBackward"


def image_layer_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank on a CPU: STEP_POOLING_S of the forward pass, STEP_CONVOLUTIONS_S of both passes."""
    on_gpu = ranks_on_gpus(recording)
    on_cpu = {rank: steps for rank, steps in steady.items() if rank not in on_gpu}
    found, samples = Measured(), list(_samples(recording))
    for measure in (STEP_POOLING_S, STEP_CONVOLUTIONS_S):
        seen = samples_by_rank((rank, count) for rank, of, count in samples if of is measure)
        new = profiled_values(recording, on_cpu, values, measure, seen)
        found.update(new)
        found.missing.update(new.missing)
    forward = found.by_rank(STEP_CONVOLUTIONS_S)
    for rank, timed, each_s in timed_passes(recording, {rank: on_cpu[rank] for rank in forward}):
        if timed is None:
            del found[STEP_CONVOLUTIONS_S, rank]
            found.missing[STEP_CONVOLUTIONS_S, rank] = NOT_TIMED
        else:
            spent_ns = sum(each["ns"] for each in timed["classes"] if each["name"].startswith(_CONVOLUTION_NODE))
            found[STEP_CONVOLUTIONS_S, rank] = forward[rank] + spent_ns * each_s
    return found


def _samples(recording: Recording) -> Iterator[tuple[int, RankMeasure, int]]:
    """Yields (rank, what the innermost frame of a forward pass belongs to, number of samples)."""
    evaluations = evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        for row in user_rows(profile):
            if in_forward(row["frames"]) and not evaluates(row, evaluations):
                frames = inner(row["frames"])
                if frames[0]["file"].endswith(_CONVOLUTIONS):
                    yield rank, STEP_CONVOLUTIONS_S, row["count"]
                elif _pools(frames):
                    yield rank, STEP_POOLING_S, row["count"]


def _pools(frames: Frames) -> bool:
    frame = frames[0]
    if frame["file"].endswith(_POOLING):
        return _MODULE.fullmatch(frame["function"]) is not None
    if not frame["file"].endswith(_FUNCTIONAL):
        return False
    by_layer = len(frames) > 1 and frames[1]["file"].endswith(_RESIZERS)
    return called(frame) in _FUNCTIONS or (by_layer and called(frame) in _RESIZING)
