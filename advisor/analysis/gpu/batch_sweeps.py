"""Relates the compute time of a step to its batch size, from a benchmark of this machine with the job's own model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import model_of, picture_of, precision_of
from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_BENCHMARKED,
    BATCH_FIXED_SHARE,
    BATCH_SIZES,
)
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import LAYOUT_CHANNELS_FIRST
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.machine_documents import BatchSweep, KnownSweeps
from rn50_advisor.probes.documents.rank_documents import RankFacts

_BATCH_RATIO_MAX = 2.0  # to the job's batch size; sizes farther away belong to another part of the curve
# Least ratio of the largest to the smallest size. Closer sizes differ by less than two measurements of one size.
_SWEEP_RATIO_MIN = 1.5


def batch_curves(recording: Recording, samples_of: Mapping[int, float], values: Measured) -> dict[int, BatchCurve]:
    """Batch curves by rank, from the benchmark kept beside the runs.

    A rank has one only if its batch size lies within a sweep of the same model, GPU, precision and layout.
    """
    bench = recording.meta.environment.get("bench")
    found: dict[int, BatchCurve] = {}
    if bench is None:
        return found
    for rank, process in process_by_rank(recording.processes).items():
        samples = samples_of.get(rank)
        sweep = _sweep(bench, recording.facts.get(process.pid, {}), values, rank)
        if not samples or sweep is None:
            continue
        rates = sorted(
            (float(size), rate) for size, rate in zip(sweep["batches"], sweep["images_per_s"], strict=True) if rate
        )
        batches, times = tuple(size for size, _ in rates), tuple(float(size / rate) for size, rate in rates)
        # a step of several batches computes each one separately
        batch = samples / max(1.0, values.get((STEP_BATCHES, rank), 1.0))
        curve = BatchCurve(batch, batches, times, sweep.get("oom_at"))
        if len(batches) > 1 and batches[-1] >= _SWEEP_RATIO_MIN * batches[0] and curve.covers(batch):
            found[rank] = curve
    return found


def sweep_values(recording: Recording, samples_of: Mapping[int, float], values: Measured) -> Measured:
    """Share of compute that does not depend on the batch size, near each rank's own. A sweep shows it better than the run's odd batches."""
    found = Measured()
    for rank, curve in batch_curves(recording, samples_of, values).items():
        points = _around(curve)
        sizes, times = ([point[n] for point in points] for n in (0, 1))
        slope, fixed = np.polyfit(sizes, times, 1)
        whole = max(slope * curve.batch + fixed, 1e-12)
        found[BATCH_FIXED_SHARE, rank] = min(1.0, max(0.0, float(fixed / whole)))
        found[BATCH_SIZES, rank] = float(len(points))
        found[BATCH_BENCHMARKED, rank] = 1.0
    return found


def _around(curve: BatchCurve) -> list[tuple[float, float]]:
    """Batch sizes near the job's, with their times; all sizes if too few are near."""
    points = list(zip(curve.batches, curve.step_s, strict=True))
    near = [p for p in points if curve.batch / _BATCH_RATIO_MAX <= p[0] <= curve.batch * _BATCH_RATIO_MAX]
    enough = near and near[0][0] <= curve.batch <= near[-1][0] and near[-1][0] >= _SWEEP_RATIO_MIN * near[0][0]
    return near if enough else points


def _sweep(bench: KnownSweeps, facts: RankFacts, values: Measured, rank: int) -> BatchSweep | None:
    """The matching sweep; None if the benchmark used another model, image size, GPU, precision or layout."""
    model, cuda = model_of(facts), facts.get("cuda")
    side = bench.get("image_size")
    if model is None or model.name != bench.get("model") or picture_of(facts) != (side, side):
        return None
    if cuda is None or cuda.get("name") != bench.get("device"):
        return None
    first, precision = values.get((LAYOUT_CHANNELS_FIRST, rank)), precision_of(facts, values, rank)
    sweeps = bench.get("sweeps", ())
    return next((s for s in sweeps if s["precision"] == precision and first == float(not s["channels_last"])), None)
