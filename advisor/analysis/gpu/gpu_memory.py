"""Memory on the GPU as torch's allocator sees it, from the recorder's looks once a second: how full, and whether it creeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.host_memory import slope
from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.steps.work_changes import batch_bytes_at
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuMemoryTrend
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import DeviceMemory
from rn50_advisor.advisor.model.recording import Recording, Series, Table

Values = dict[tuple[str, str], float]

_MB = 1e6
_READINGS = 6  # two for each third
_WARM_UP_SHARE = 0.25  # caches of the allocator and of cuDNN fill at first


def gpu_memory(
    recording: Recording, steady: Mapping[int, RankSteps], gpus: tuple[Gpu, ...]
) -> tuple[Values, tuple[GpuMemoryTrend, ...]]:
    """Values of ranks, and what their tensors hold as it moves over the run."""
    values: Values = {}
    trends = []
    for rank, steps in steady.items():
        looks = _looks(recording.gpu_steps.get(rank), steps)
        if looks is None:
            continue
        gpu = next((gpu for gpu in gpus if rank in gpu.ranks), None)
        process = process_by_rank(recording.processes).get(rank)
        told = recording.facts.get(process.pid, {}) if process else {}
        total = _total_bytes(told, gpu)
        scope = f"rank:{rank}"
        values["gpu.memory_watched", scope] = float(looks.size)
        values["gpu.alloc_retries", scope] = float(looks["alloc_retries"].max() - looks["alloc_retries"].min())
        peak, reserved = float(looks["peak_bytes"].max()), float(looks["reserved_bytes"].max())
        values["gpu.fragmented_share", scope] = max(0.0, 1.0 - peak / reserved)
        if total:
            values["gpu.reserved_share", scope] = reserved / total
            values["gpu.peak_share", scope] = peak / total
        trend = _trend(rank, gpu, looks, steps, total, facts=told)
        if trend is not None:
            trends.append(trend)
    return values, tuple(trends)


def _looks(table: Table | None, steps: RankSteps) -> Table | None:
    """The steady steps at which the recorder asked the allocator; None without any."""
    if table is None or not table.size:
        return None
    looked = table[(table["allocated_bytes"] >= 0) & (table["step"] >= steps.step[0]) & (table["reserved_bytes"] > 0)]
    return looked[np.argsort(looked["step"], kind="stable")] if looked.size else None


def _total_bytes(facts: Mapping[str, Any], gpu: Gpu | None) -> float | None:
    """What the rank may fill: of a MIG instance its own part, which CUDA tells."""
    cuda = facts.get("cuda")
    told = cuda.get("memory_bytes") if isinstance(cuda, Mapping) else None
    return float(told) if told else gpu.mem_total_bytes if gpu is not None and not gpu.mig else None


def _trend(
    rank: int, gpu: Gpu | None, looks: Table, steps: RankSteps, total: float | None, *, facts: Mapping[str, Any]
) -> GpuMemoryTrend | None:
    first, last = int(looks["step"][0]), int(looks["step"][-1])
    late = looks[looks["step"] >= first + _WARM_UP_SHARE * (last - first)]
    if late.size < _READINGS or last <= int(late["step"][0]):
        return None
    held = late["allocated_bytes"].astype(np.float64) / _MB
    # as if steps were nanoseconds: the slope is per step then
    per_step = slope(Series(late["step"].astype(np.int64) * 1_000_000_000, held))
    thirds = _medians_of_thirds(held)
    batches = batch_bytes_at(facts, late["step"].astype(np.int64))
    smaller, _, larger = (1.0, 1.0, 1.0) if batches is None else _medians_of_thirds(batches)
    covered = float(last - int(late["step"][0]))
    return GpuMemoryTrend(
        rank=rank,
        gpu=gpu.index if gpu else None,
        steps=covered,
        seconds=covered * _mean_step_s(steps),
        thirds_mb=thirds,
        mb_per_step=per_step,
        left_mb=None if total is None else max(0.0, total / _MB - float(held[-1])),
        batch_times=larger / smaller,
    )


def _medians_of_thirds(values: NDArray[np.float64]) -> tuple[float, float, float]:
    first, second, third = (float(np.median(part)) for part in np.array_split(values, 3))
    return first, second, third


def _mean_step_s(steps: RankSteps) -> float:
    lengths: NDArray[np.float64] = steps.length
    return float(lengths.sum() / max(float(steps.count.sum()), 1.0))


# What the allocator of each rank held, by the recorder's looks at it and by what its optimizer steps.
def device_memory(recording: Recording) -> tuple[DeviceMemory, ...]:
    """Of every rank whose allocator was looked at, warm-up included: a peak is a peak."""
    found = []
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        table = recording.gpu_steps.get(rank)
        looks = table[(table["allocated_bytes"] >= 0) & (table["reserved_bytes"] > 0)] if table is not None else None
        if looks is None or not looks.size:
            continue
        facts = recording.facts.get(process.pid, {})
        cuda, held = facts.get("cuda"), facts.get("optimizer")
        total = cuda.get("memory_bytes") if isinstance(cuda, Mapping) else None
        found.append(
            DeviceMemory(
                rank=rank,
                allocated=float(looks["allocated_bytes"].max()),
                peak=float(looks["peak_bytes"].max()),
                reserved=float(looks["reserved_bytes"].max()),
                retries=float(looks["alloc_retries"].max() - looks["alloc_retries"].min()),
                total=float(total) if isinstance(total, int) else None,
                **(_parts(held) if isinstance(held, Mapping) else {}),
            )
        )
    return tuple(found)


def _parts(held: Mapping[str, Any]) -> dict[str, float]:
    names = {"parameters": "parameter_bytes", "gradients": "gradient_bytes", "state": "state_bytes"}
    return {part: float(held[name]) for part, name in names.items() if isinstance(held.get(name), int)}
