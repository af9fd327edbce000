"""Relates the compute of a step to its batch size, from odd sizes in the run, such as the last batch of an epoch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.steps.phases import exposed_comm, phases_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_FIXED_SHARE,
    BATCH_SAMPLES,
    BATCH_SIZES,
    BATCH_USUAL_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording

_STEPS_MIN = 3  # steps of a size; the first one of a new size includes tuning or compilation
_SIZE_DIFFERENCE_MIN = 0.25  # of the usual size; closer sizes differ by less than the noise between steps
_ONE_SIZE = "all batches have one size: what another size would take is not known (bench -o RUN_DIR/bench.json would measure it)"


def batch_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Batch sizes of every rank and, if it met several, the fixed share of compute, over steps with the usual number of micro-batches."""
    values = Measured()
    for rank, steps in steady.items():
        plain = (steps.count == 1) & (steps.columns["samples"] > 0)
        if not plain.any():
            continue
        # a step with fewer micro-batches lacks whole ones, which says nothing about the fixed part of each
        plain &= steps.columns["micro_batches"] == _most_common(steps.columns["micro_batches"][plain])
        sizes, often = np.unique(steps.columns["samples"][plain], return_counts=True)
        usual = float(sizes[often.argmax()])
        values[BATCH_SAMPLES, rank] = usual
        values[BATCH_USUAL_SHARE, rank] = float(often.max() / often.sum())
        others = [
            float(s)
            for s, n in zip(sizes, often, strict=True)
            if n >= _STEPS_MIN and abs(s - usual) >= _SIZE_DIFFERENCE_MIN * usual
        ]
        if not others:
            continue
        compute = _compute_s(recording, rank, steps)
        taken = [float(np.median(compute[plain & (steps.columns["samples"] == size)])) for size in (usual, *others)]
        fixed = _fixed_s(np.array([usual, *others]), np.array(taken))
        values[BATCH_FIXED_SHARE, rank] = min(1.0, max(0.0, fixed / max(taken[0], 1e-12)))
        values[BATCH_SIZES, rank] = float(1 + len(others))
    if trains_on_gpu(recording) and not values.has(BATCH_FIXED_SHARE):
        values.missing[BATCH_FIXED_SHARE, JOB] = _ONE_SIZE
    return values


def _most_common(numbers: NDArray[np.float64]) -> float:
    found, often = np.unique(numbers, return_counts=True)
    return float(found[often.argmax()])


def _compute_s(recording: Recording, rank: int, steps: RankSteps) -> NDArray[np.float64]:
    phases = phases_of(steps, recording.gpu_steps.get(rank))
    exposed = exposed_comm(steps, recording.comm.get(rank), phases)
    total = phases["forward"] + phases["backward"] + phases["optimizer"]
    return np.asarray(total - exposed[0] if exposed else total)


def _fixed_s(sizes: NDArray[np.float64], taken_s: NDArray[np.float64]) -> float:
    """Seconds for an empty batch, by a line through these times."""
    slope, fixed = np.polyfit(sizes, taken_s, 1)
    return float(fixed) if slope > 0 else float(taken_s.min())
