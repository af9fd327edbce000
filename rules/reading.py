"""What several rules read from an analysis in the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping

from advisor.core.analysis import Analysis, LoaderFacts
from advisor.core.findings import Evidence, Where
from advisor.core.stats import others_median
from advisor.core.step_model import StepModel

# Parallel efficiency of loader workers before it is measured: 62-89 % per worker at four workers on real decoding.
WORKER_EFFICIENCY = 0.7
# Head-room of the worker formula: the loader should be a little faster than the step.
HEADROOM = 1.15


def common(by_rank: Mapping[int, float]) -> float:
    """What at least half of the ranks have: the lower median. One rank's trouble alone does not raise it."""
    ordered = sorted(by_rank.values())
    return ordered[(len(ordered) - 1) // 2]


def mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def model_of(a: Analysis) -> StepModel:
    """The step model, which exists whenever `step.time_s` was measured."""
    if a.model is None:
        raise KeyError("step.time_s")
    return a.model


def luck_of_the_heap(a: Analysis, rank: int) -> float:
    """Seconds per step that the kernel takes for this rank's compute beyond the others': page faults that malloc brings on itself.

    Whether the heap of a process shrinks and grows in each step is chance: of twelve starts of one sound job on two cores, two had a rank
    1.2 times slower by it, each time another; with MALLOC_TRIM_THRESHOLD_ out of reach, ranks differed by 2 %.
    """
    system = a.by_rank("step.system_s")
    return max(0.0, system[rank] - others_median(system, rank)) if rank in system and len(system) > 1 else 0.0


def idle_cores(a: Analysis) -> float:
    """Allowed cores that nobody used while the steps ran."""
    return a.value("cpu.allowed_cores") - max(a.value("cpu.job_cores"), a.value("cpu.host_busy_cores"))


def spare_cores(a: Analysis, *, cores: float, share: float) -> float:
    """What must idle for another worker to have a place: so many cores, on larger hosts this share of the allowed ones.

    DAT001 and DAT004 divide the ground between them here: below it the CPUs are exhausted, from it on workers are missing.
    """
    return max(cores, share * a.value("cpu.allowed_cores"))


def cpu_of_workers_s(a: Analysis) -> float:
    """CPU seconds per step that loader workers take to make batches, of all ranks together."""
    shares, batches = a.by_rank("fetch.cpu_share"), a.by_rank("step.batches")
    return sum(
        shares.get(rank, 0.0) * wall * batches.get(rank, 1.0)
        for rank, wall in a.by_rank("fetch.wall_s").items()
        if a.get("loader.workers", rank)
    )


def delay_of_own_making(a: Analysis) -> dict[int, float]:
    """Seconds per step that each rank's training thread waits for a core which the job itself, not a neighbour, keeps busy."""
    job, others = a.value("cpu.job_cores"), a.get("cpu.other_cores") or 0.0
    return {rank: delay * job / max(job + others, 1e-9) for rank, delay in a.by_rank("step.run_delay_s").items()}


def without_delay(model: StepModel, delays: Mapping[int, float]) -> dict[tuple[int, str], float]:
    """Changes for `StepModel.step_if`: these ranks get back so many seconds of waiting for a core, spread over their phases."""
    changes: dict[tuple[int, str], float] = {}
    for rank, delay in delays.items():
        own = model.own_s(rank)
        keep = max(0.0, own - delay) / own if own > 0 else 1.0
        changes |= {(rank, phase): seconds * keep for phase, seconds in model.own[rank].items()}
    return changes


def lost_to_input(a: Analysis) -> float:
    """Seconds per step that no wait for input would give back."""
    model = model_of(a)
    return model.step_s - model.step_if({(rank, "input_wait"): begin_of_epochs(a, rank) for rank in model.own})


def begin_of_epochs(a: Analysis, rank: int) -> float:
    """The part of a rank's input wait that no faster loading changes: workers that start (DAT006)."""
    return a.get("step.epoch_start_s", rank) or 0.0


def input_evidence(a: Analysis, wait_s: float, threshold: float) -> Evidence:
    step = a.value("step.time_s")
    return Evidence(
        "step.input_wait_s",
        wait_s,
        "s",
        threshold * step,
        f"{100 * wait_s / step:.0f} % of a {1000 * step:.0f} ms step",
    )


def where_of(loader: LoaderFacts | None) -> Where | None:
    return Where(loader.file, loader.line) if loader is not None and loader.file else None


def training_loader(a: Analysis, ranks: Mapping[int, float]) -> LoaderFacts | None:
    return next((loader for rank in sorted(ranks) if (loader := a.training_loader(rank)) is not None), None)


def worker_cap(a: Analysis) -> int | None:
    """Workers per rank that the allowed cores leave room for, one core per rank kept for training; None where cores are unknown."""
    cores = a.get("cpu.allowed_cores")
    return None if cores is None else max(0, math.floor(cores / max(a.world_size, 1)) - 1)


def workers_for(a: Analysis, rank: int, wall_per_batch_s: float) -> tuple[int, int]:
    """(workers advised, workers the formula wants): ceil(1.15 * G / (r * e)), capped by the cores of this rank, at least one.

    G is what the rank could consume without waiting, r what one worker makes; `wall_per_batch_s` is the making of one batch.
    """
    model = model_of(a)
    rest = max(model.own_s(rank) - model.own[rank]["input_wait"] + model.wire_s, 1e-6)
    wanted = max(1, math.ceil(HEADROOM * wall_per_batch_s / (rest * WORKER_EFFICIENCY)))
    cap = worker_cap(a)
    return (wanted if cap is None else max(1, min(wanted, cap))), wanted


def step_with_workers(
    a: Analysis, walls: Mapping[int, float], workers: int, efficiency: float, *, floor: float = 1.0
) -> float:
    """Step time when each rank's batches (`walls`: seconds to make one) are made by so many workers beside the step.

    The loader's rate, what the rank does besides, and the CPU work over the allowed cores (`floor` scales it) all bound it.
    """
    model = model_of(a)
    changes = {}
    for rank, wall in walls.items():
        rest = model.own_s(rank) - model.own[rank]["input_wait"] + model.wire_s
        changes[rank, "input_wait"] = begin_of_epochs(a, rank) + max(0.0, wall / (workers * efficiency) - rest)
    return model.step_if(changes, floor_s=floor * model.cpu_floor_s())
