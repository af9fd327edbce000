"""What several rules read from an analysis in the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping

from advisor.core.analysis import Analysis, LoaderFacts
from advisor.core.findings import Evidence, Where
from advisor.core.stats import others_median
from advisor.core.step_model import StepModel
from advisor.core.worker_model import Forecast

# Even a worker that sleeps through its batches takes them in and hands them over.
_LEAST_SHARE = 0.05


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


def forecast_of(a: Analysis) -> Forecast:
    """The forecast over worker counts, which exists wherever `fetch.wall_s` was measured."""
    if a.forecast is None:
        raise KeyError("fetch.wall_s")
    return a.forecast


def room_for_workers(a: Analysis) -> int | None:
    """Workers per rank that fit: one for each core of the rank, more where they mostly wait; fewer where `worker_cap` allows fewer."""
    cap, cores = worker_cap(a), a.get("cpu.allowed_cores")
    if cap is None or cores is None or a.workers is None:
        return cap
    own = cores / max(a.world_size, 1)
    if cap < math.floor(own) - 1:
        return max(1, cap)  # something else than cores is short
    return max(1, math.floor(own / core_share(a) + 1e-6))


def core_share(a: Analysis) -> float:
    """Of a core, what a worker takes that always has a batch to make; the rest of its time it waits for reads or sleeps."""
    shares = [feed.computing_share for feed in a.workers.feeds.values()] if a.workers else []
    return max(_LEAST_SHARE, *shares) if shares else 1.0


def workers_for(a: Analysis) -> tuple[int, int]:
    """(workers per rank advised, workers the step could use): the knee of the forecast, within the room there is and beyond it."""
    expected = forecast_of(a)
    return expected.knee(room_for_workers(a)), expected.knee()
