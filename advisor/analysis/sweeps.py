"""How the compute of a step depends on the size of its batch, by a benchmark of the machine that swept batches of the job's own model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from advisor.analysis.host import process_by_rank
from advisor.analysis.trained import model_of, picture_of, precision_of
from advisor.core.recording import Recording

Values = dict[tuple[str, str], float]

_AROUND = 2.0  # times larger or smaller than the job's batch: farther ones tell of another part of the curve
_SPAN = 1.5  # between the smallest and the largest of them, at least: closer ones differ by less than two measurements of one


def sweep_values(recording: Recording, values: Values, missing: dict[str, str]) -> Values:
    """Of every rank that met one size of batch alone; what another would take then stands in the benchmark beside the runs."""
    bench = recording.meta.environment.get("bench")
    found: Values = {}
    if not isinstance(bench, Mapping):
        return found
    for rank, process in process_by_rank(recording.processes).items():
        scope = f"rank:{rank}"
        batch = values.get(("batch.samples", scope))
        if not batch or ("batch.fixed_share", scope) in values:
            continue
        told = recording.facts.get(process.pid, {})
        points = [p for p in _points(bench, told, values, rank) if batch / _AROUND <= p[0] <= batch * _AROUND]
        sizes = [size for size, _ in points]
        if sizes and min(sizes) <= batch <= max(sizes) and max(sizes) >= _SPAN * min(sizes):
            slope, fixed = np.polyfit(sizes, [seconds for _, seconds in points], 1)
            found["batch.fixed_share", scope] = min(1.0, max(0.0, float(fixed / max(slope * batch + fixed, 1e-12))))
            found["batch.sizes", scope] = float(len(points))
            found["batch.benchmarked", scope] = 1.0
    if found:
        missing.pop("batch.fixed_share", None)
    return found


def _points(
    bench: Mapping[str, Any], told: Mapping[str, Any], values: Values, rank: int
) -> Iterator[tuple[float, float]]:
    """Sizes of batches and the seconds a step of each takes on one device; none where the benchmark trained something else."""
    model, cuda = model_of(told), told.get("cuda")
    side = bench.get("image_size")
    if model is None or model.name != bench.get("model") or picture_of(told) != (side, side):
        return
    if not isinstance(cuda, Mapping) or cuda.get("name") != bench.get("device"):
        return
    first = values.get(("layout.channels_first", f"rank:{rank}"))
    for sweep in bench.get("sweeps") or ():
        if sweep["precision"] == precision_of(told, values, rank) and first == float(not sweep["channels_last"]):
            for batch, rate in zip(sweep["batches"], sweep["images_per_s"], strict=True):
                if rate:
                    yield float(batch), batch / rate
