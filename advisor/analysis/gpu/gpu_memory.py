"""GPU memory as torch's allocator reports it: how full it is, and its growth. The recorder reads it once a second."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.host_memory import slope
from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.steps.work_changes import batch_bytes_at
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuMemoryTrend
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import DeviceMemory
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_ALLOC_RETRIES,
    GPU_FOREIGN_PROCESSES,
    GPU_FRAGMENTED_SHARE,
    GPU_MEMORY_WATCHED,
    GPU_PEAK_SHARE,
    GPU_RESERVED_SHARE,
    GPU_UNEXPLAINED_MB,
)
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Series, Table
from rn50_advisor.probes.documents.model_documents import HeldMemory
from rn50_advisor.probes.documents.rank_documents import CudaFacts, RankFacts

_MB = 1e6
_READINGS_MIN = 6  # two for each third
# Of one process on the only GPU of its kind: context, kernels and workspaces of cuDNN, buffers of NCCL.
_BESIDE_TORCH_MB = 3_000.0
_WARM_UP_SHARE = 0.25  # the caches of the allocator and of cuDNN fill in this time


def gpu_memory(
    recording: Recording, steady: Mapping[int, RankSteps], gpus: tuple[Gpu, ...]
) -> tuple[Measured, tuple[GpuMemoryTrend, ...]]:
    """Memory measures of each rank, and the trend of its tensors' memory over the run."""
    values = Measured()
    trends = []
    for rank, steps in steady.items():
        rows = _steady_rows(recording.gpu_steps.get(rank), steps)
        if rows is None:
            continue
        gpu = next((gpu for gpu in gpus if rank in gpu.ranks), None)
        process = process_by_rank(recording.processes).get(rank)
        facts = recording.facts.get(process.pid, {}) if process else {}
        total = _total_bytes(facts, gpu)
        values[GPU_MEMORY_WATCHED, rank] = float(rows.size)
        values[GPU_ALLOC_RETRIES, rank] = float(rows["alloc_retries"].max() - rows["alloc_retries"].min())
        peak, reserved = float(rows["peak_bytes"].max()), float(rows["reserved_bytes"].max())
        values[GPU_FRAGMENTED_SHARE, rank] = max(0.0, 1.0 - peak / reserved)
        if total:
            values[GPU_RESERVED_SHARE, rank] = reserved / total
            values[GPU_PEAK_SHARE, rank] = peak / total
        trend = _trend(rank, gpu, rows, steps, total, facts=facts)
        if trend is not None:
            trends.append(trend)
    return values, tuple(trends)


def _steady_rows(table: Table | None, steps: RankSteps) -> Table | None:
    """The steady steps in which the recorder read the allocator's statistics; None if there are none."""
    if table is None or not table.size:
        return None
    looked = table[(table["allocated_bytes"] >= 0) & (table["step"] >= steps.step[0]) & (table["reserved_bytes"] > 0)]
    return looked[np.argsort(looked["step"], kind="stable")] if looked.size else None


def _total_bytes(facts: RankFacts, gpu: Gpu | None) -> float | None:
    """Memory that the rank may use. On a MIG instance this is the instance's own memory, as CUDA reports it."""
    memory_bytes = (facts.get("cuda") or CudaFacts()).get("memory_bytes")
    return float(memory_bytes) if memory_bytes else gpu.mem_total_bytes if gpu is not None and not gpu.mig else None


def _trend(
    rank: int, gpu: Gpu | None, rows: Table, steps: RankSteps, total: float | None, *, facts: RankFacts
) -> GpuMemoryTrend | None:
    first, last = int(rows["step"][0]), int(rows["step"][-1])
    late = rows[rows["step"] >= first + _WARM_UP_SHARE * (last - first)]
    if late.size < _READINGS_MIN or last <= int(late["step"][0]):
        return None
    held = late["allocated_bytes"].astype(np.float64) / _MB
    # a step stands for a second, so the slope is per step
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


# Allocator memory of each rank, from the recorder's samples and from its optimizer's parameters.
def device_memory(recording: Recording) -> tuple[DeviceMemory, ...]:
    """Allocator statistics of every sampled rank. They include the warm-up, because its peaks count too."""
    found = []
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        table = recording.gpu_steps.get(rank)
        rows = table[(table["allocated_bytes"] >= 0) & (table["reserved_bytes"] > 0)] if table is not None else None
        if rows is None or not rows.size:
            continue
        facts = recording.facts.get(process.pid, {})
        total, held = (facts.get("cuda") or CudaFacts()).get("memory_bytes"), facts.get("optimizer", HeldMemory())
        found.append(
            DeviceMemory(
                rank=rank,
                allocated=float(rows["allocated_bytes"].max()),
                peak=float(rows["peak_bytes"].max()),
                reserved=float(rows["reserved_bytes"].max()),
                retries=float(rows["alloc_retries"].max() - rows["alloc_retries"].min()),
                total=None if total is None else float(total),
                **_parts(held),
            )
        )
    return tuple(found)


def _parts(held: HeldMemory) -> dict[str, float]:
    sizes = {
        "parameters": held.get("parameter_bytes"),
        "gradients": held.get("gradient_bytes"),
        "state": held.get("state_bytes"),
    }
    return {part: float(size) for part, size in sizes.items() if size is not None}


# Memory that another process holds where the driver lists none, as in most containers. The driver counts all memory in use. The job's is
# what torch's allocator has reserved, and the contexts and libraries of its processes, which take about as much on every GPU of the job.
def unexplained_values(recording: Recording, window: Window, gpus: tuple[Gpu, ...], known: Measured) -> Measured:
    """For GPUs whose processes are not listed: their memory beyond torch's, less that of the job's other GPUs of the same model."""
    beside = {
        gpu: rest
        for gpu in gpus
        if gpu.ranks and not gpu.mig and (rest := _beside_torch_mb(recording, window, gpu)) is not None
    }
    values = Measured()
    for gpu, rest_mb in beside.items():
        if (GPU_FOREIGN_PROCESSES, gpu.index) not in known:
            peers = [other_mb for other, other_mb in beside.items() if other is not gpu and other.name == gpu.name]
            usual_mb = median(peers) if peers else _BESIDE_TORCH_MB * len(gpu.ranks)
            values[GPU_UNEXPLAINED_MB, gpu.index] = max(0.0, rest_mb - usual_mb)
    return values


def _beside_torch_mb(recording: Recording, window: Window, gpu: Gpu) -> float | None:
    """Memory in use beyond what torch has reserved in all of the GPU's ranks; None if that is not known."""
    used = window.level("gpu.mem_used_bytes", f"gpu:{gpu.index}")
    reserved = [_reserved_bytes(recording.gpu_steps.get(rank)) for rank in gpu.ranks]
    known = [size for size in reserved if size is not None]
    if used is None or len(known) < len(reserved):
        return None
    return (used - sum(known)) / _MB


def _reserved_bytes(table: Table | None) -> float | None:
    rows = np.empty(0) if table is None else table["reserved_bytes"][table["reserved_bytes"] > 0]
    return float(rows.max()) if rows.size else None
