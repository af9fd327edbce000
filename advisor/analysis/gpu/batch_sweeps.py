"""How the compute of a step depends on the size of its batch, by a benchmark of the machine that swept batches of the job's own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import model_of, picture_of, precision_of
from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve
from rn50_advisor.advisor.model.recording import Recording

Values = dict[tuple[str, str], float]

_AROUND = 2.0  # times larger or smaller than the job's batch: farther ones tell of another part of the curve
_SPAN = 1.5  # between the smallest and the largest of them, at least: closer ones differ by less than two measurements of one


def batch_curves(recording: Recording, values: Mapping[tuple[str, str], float]) -> dict[int, BatchCurve]:
    """Of every rank whose batch lies within a sweep of its model, GPU, precision and layout in the benchmark beside the runs."""
    bench = recording.meta.environment.get("bench")
    found: dict[int, BatchCurve] = {}
    if not isinstance(bench, Mapping):
        return found
    for rank, process in process_by_rank(recording.processes).items():
        scope = f"rank:{rank}"
        samples = values.get(("batch.samples", scope))
        sweep = _sweep(bench, recording.facts.get(process.pid, {}), values, rank)
        if not samples or sweep is None:
            continue
        rates = sorted(
            (float(size), rate) for size, rate in zip(sweep["batches"], sweep["images_per_s"], strict=True) if rate
        )
        batches, times = tuple(size for size, _ in rates), tuple(float(size / rate) for size, rate in rates)
        # of a step of several batches each one is computed by itself
        batch = samples / max(1.0, values.get(("step.batches", scope), 1.0))
        curve = BatchCurve(batch, batches, times, sweep.get("oom_at"))
        if len(batches) > 1 and batches[-1] >= _SPAN * batches[0] and curve.covers(batch):
            found[rank] = curve
    return found


def sweep_values(recording: Recording, values: Values, missing: dict[str, str]) -> Values:
    """What does not depend on the size of the batch, around that of each rank. Batches of other sizes in the run itself tell less of it."""
    found: Values = {}
    for rank, curve in batch_curves(recording, values).items():
        points = _around(curve)
        sizes, times = ([point[n] for point in points] for n in (0, 1))
        slope, fixed = np.polyfit(sizes, times, 1)
        whole = max(slope * curve.batch + fixed, 1e-12)
        scope = f"rank:{rank}"
        found["batch.fixed_share", scope] = min(1.0, max(0.0, float(fixed / whole)))
        found["batch.sizes", scope] = float(len(points))
        found["batch.benchmarked", scope] = 1.0
    if found:
        missing.pop("batch.fixed_share", None)
    return found


def _around(curve: BatchCurve) -> list[tuple[float, float]]:
    """Sizes near the job's and their times; all of them where too few are near."""
    points = list(zip(curve.batches, curve.step_s, strict=True))
    near = [p for p in points if curve.batch / _AROUND <= p[0] <= curve.batch * _AROUND]
    enough = near and near[0][0] <= curve.batch <= near[-1][0] and near[-1][0] >= _SPAN * near[0][0]
    return near if enough else points


def _sweep(
    bench: Mapping[str, Any], told: Mapping[str, Any], values: Mapping[tuple[str, str], float], rank: int
) -> Mapping[str, Any] | None:
    """None where the benchmark trained something else, or in another way."""
    model, cuda = model_of(told), told.get("cuda")
    side = bench.get("image_size")
    if model is None or model.name != bench.get("model") or picture_of(told) != (side, side):
        return None
    if not isinstance(cuda, Mapping) or cuda.get("name") != bench.get("device"):
        return None
    first, precision = values.get(("layout.channels_first", f"rank:{rank}")), precision_of(told, values, rank)
    sweeps: list[Mapping[str, Any]] = list(bench.get("sweeps") or ())
    return next(
        (s for s in sweeps if s["precision"] == precision and first == float(not s["channels_last"])),
        None,
    )
