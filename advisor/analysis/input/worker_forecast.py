"""Builds the worker model: how each rank's batches are made and consumed, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.loading import Loading, making_of, training_batches
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.reading_limit import storage_ceiling
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import CROWDING, LOCK_TAKEN, WorkerFeed, WorkerModel
from rn50_advisor.advisor.model.free_cores import Cores
from rn50_advisor.advisor.model.input.data_loaders import with_helpers_s
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_AFFINITY_CORES,
    CPU_ALLOWED_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_HOST_CORES,
    CPU_JOB_CORES,
    CPU_OTHER_CORES,
)
from rn50_advisor.advisor.model.measures.input_measures import (
    DATA_NETWORK_MOUNT,
    FETCH_HAND_OVER_S,
    LOADER_HELPER_SHARE,
    LOADER_LOCK_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_STARTS,
    STEP_EPOCH_START_S,
    STEP_INDEX_S,
    STEP_RUN_DELAY_S,
    STEP_SYSTEM_S,
)
from rn50_advisor.advisor.model.recording import Recording, Table

Array = NDArray[np.float64]

_BATCHES_SIMULATED = 160  # batches taken from a run, as many as the model simulates
# Best and worst time to hand a batch from a worker to the loop, if the run does not show it. Measured on two cores, from tiny batches up:
# 1.6 to 2.2 ms beside other work. The best is the time for a pipe and two wake-ups on idle cores.
_HAND_OVER_S = (0.0003, 0.0022)
# Best and worst rate for the bytes of that batch: their pages are mapped, first touched, and freed.
_HAND_OVER_BYTES_PER_S = (20e9, 4e9)
# Extra time to make a batch in a worker: it goes into new pages of shared memory, and caches are cold after each sleep. Measured: 0.3 ms
# for 0.1 MB, 0.5 and 1.8 ms for 0.2 MB, 3.3 ms for 0.8 MB, 3.0 ms for 3.1 MB.
_MOVED_S = (0.0002, 0.0008)
_MOVED_BYTES_PER_S = (4e9, 1e9)
# Most kernel time of a worker that shared memory can explain, for a batch of any size and per byte: the most that was measured was 2.4 ms.
# More than that is the sample's own, for the files that it reads, and stays if the training process makes it.
_SHARED_KERNEL_S = 0.003
_SHARED_KERNEL_BYTES_PER_S = 0.5e9
# Kernel time in the training process per batch of any size: a descriptor is passed on, pages are mapped, a queue thread is woken to send
# the next index. With batches of 0.1 MB, forward and backward spent 0.3 to 0.39 ms in the kernel, and making a batch 0.11 ms; without
# workers, 0.01 to 0.03 ms.
_HANDED_KERNEL_S = 0.0002
_BATCHES_MIN = 40  # batches needed to compare the cost of a batch made beside others with one made alone
_CROWDING_UNCERTAINTY = 0.05  # slowdown that the measurement may miss
_COMPANY_DIFFERENCE_MIN = 0.5  # least difference of the compared groups in mean batches in progress


@dataclass(frozen=True, slots=True)
class _Known:
    """Everything about the job that the worker model needs."""

    recording: Recording
    model: StepModel
    loaders: tuple[LoaderFacts, ...]
    values: Measured


def worker_model(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    loading: Mapping[int, Loading | None],
    *,
    model: StepModel,
    loaders: tuple[LoaderFacts, ...],
    values: Measured,
) -> WorkerModel | None:
    """The worker model; None if the making of batches was not seen, or if a library makes them with workers of its own kind."""
    known = _Known(recording, model, loaders, values)
    feeds = {}
    for rank, made in loading.items():
        loader = training_loader(loaders, rank)
        if made is not None and made.wall_s > 0 and not (loader and loader.library):
            feeds[rank] = _feed(known, steady[rank], made)
    if not feeds:
        return None
    other = _neighbours_cores(known)
    busy = known.values.get((CPU_JOB_CORES, JOB), 0.0) + other
    measured = measured_crowding(recording, steady, loaders, model.allowed_cores)
    return WorkerModel(model, feeds, max(1.0, busy), other, measured or CROWDING)


def _neighbours_cores(known: _Known) -> float:
    """Cores that other jobs occupy among those this job may use."""
    allowed, job, busy = (
        known.values.get((measure, JOB)) for measure in (CPU_ALLOWED_CORES, CPU_JOB_CORES, CPU_HOST_BUSY_CORES)
    )
    others = known.values.get((CPU_OTHER_CORES, JOB), 0.0)
    if allowed is None or job is None or busy is None:
        return others
    host, affinity = known.values.get((CPU_HOST_CORES, JOB)), known.values.get((CPU_AFFINITY_CORES, JOB))
    return Cores(allowed, job, busy, others, host, affinity).taken or 0.0


def _feed(known: _Known, steps: RankSteps, made: Loading) -> WorkerFeed:
    rank, model = steps.rank, known.model
    own, loader = model.own[rank], training_loader(known.loaders, rank)
    batches = (loader.per_step if loader else None) or max(steps.per_step("micro_batches"), 1e-3)
    computing, waiting = _made(known, steps, made, loader)
    busy_s = sum(own.values()) - own["input_wait"] + model.wire_s + model.jitter_s
    delay_s = known.values.get((STEP_RUN_DELAY_S, rank), 0.0)
    if not made.workers:  # waiting for a core while making a batch is not part of the time between batches
        delay_s -= batches * made.delay_s
    delay_s = min(max(0.0, delay_s), 0.5 * busy_s)
    handed = known.values.get((FETCH_HAND_OVER_S, rank))
    threads = with_helpers_s(1.0, known.values.get((LOADER_HELPER_SHARE, rank))) if made.workers else 1.0
    reads = made.reads or bool(known.values.get((DATA_NETWORK_MOUNT, rank)))
    return WorkerFeed(
        workers=made.workers,
        computing_s=computing,
        waiting_s=waiting,
        # evaluation and checkpoints are rare; while they run, workers can only fill their queues
        rest_s=_rest(steps, max(0.0, busy_s - delay_s - own["gap.evaluation"] - own["gap.checkpoint"]) / batches),
        batches=batches,
        begin_s=known.values.get((STEP_EPOCH_START_S, rank), 0.0),
        first_s=_first_s(known, steps, made),
        delay_s=delay_s,
        reading_s=made.blocked_s if reads else 0.0,
        full_s=_full_s(known, made) if reads else 0.0,
        locked_s=_locked_s(known, made),
        kernel_s=_kernel_s(made, loader),
        faults_s=_faults_s(known, rank, _kernel_s(made, loader), batches if made.workers else 0.0),
        index_s=known.values.get((STEP_INDEX_S, rank), 0.0) / batches,
        hand_over_s=_hand_over(loader) if handed is None else (0.8 * handed, 1.2 * handed),
        moved_s=(0.0, 0.0) if made.workers else _moved(loader),
        prefetch=(loader.prefetch_factor if loader else None) or 2,
        training_cores=_training_cores(model, threads * made.cpu_s * batches, busy_s),
        threads=threads,
    )


def _full_s(known: _Known, made: Loading) -> float:
    """Seconds per batch at the storage's maximum rate, which all ranks share; 0 if it is unknown."""
    ceiling = storage_ceiling(known.values, made, known.model.hosts)
    return len(known.model.own) * made.samples / ceiling.samples_per_s if ceiling else 0.0


def _locked_s(known: _Known, made: Loading) -> float:
    """Seconds per batch if workers take turns at a lock, so that more workers make no more batches than now; 0 without such a lock."""
    taken = known.values.get((LOADER_LOCK_SHARE, JOB), 0.0) >= LOCK_TAKEN
    return made.wall_s / made.workers if taken and made.workers else 0.0


def _first_s(known: _Known, steps: RankSteps, made: Loading) -> float:
    """Seconds per step to make the first batch of each epoch. 0 with workers: `step.epoch_start_s` includes it then.

    Measured: 42 ms remained at each epoch start where a batch took 39 ms.
    """
    if made.workers:
        return 0.0
    starts = known.values.get((EPOCH_STARTS, steps.rank), 0.0)
    return starts * (made.wall_s - made.delay_s) / max(float(steps.count.sum()), 1.0)


def _kernel_s(made: Loading, loader: LoaderFacts | None) -> float:
    """Kernel time of a worker per batch that shared memory may explain."""
    size = loader.batch_bytes if loader else None
    most = math.inf if size is None else _SHARED_KERNEL_S + size / _SHARED_KERNEL_BYTES_PER_S
    return min(made.system_s or 0.0, most)


def _faults_s(known: _Known, rank: int, kernel_s: float, batches: float) -> float:
    """Kernel time per step that workers cause in the training process: mapping and unmapping their pages, and handing over.
    `batches`: per step, from workers.
    """
    return min(known.values.get((STEP_SYSTEM_S, rank), 0.0), batches * (kernel_s + _HANDED_KERNEL_S))


def _hand_over(loader: LoaderFacts | None) -> tuple[float, float]:
    """Range of seconds that taking a batch from a worker may cost the training thread, by batch size, if the run does not show it."""
    size = (loader.batch_bytes if loader else None) or 0
    low, high = (fixed + size / rate for fixed, rate in zip(_HAND_OVER_S, _HAND_OVER_BYTES_PER_S, strict=True))
    return low, high


def _moved(loader: LoaderFacts | None) -> tuple[float, float]:
    """Range of the extra cost of making a batch in a worker instead of the training process, by batch size."""
    size = (loader.batch_bytes if loader else None) or 0
    low, high = (fixed + size / rate for fixed, rate in zip(_MOVED_S, _MOVED_BYTES_PER_S, strict=True))
    return low, high


def _training_cores(model: StepModel, making_s: float, busy_s: float) -> float:
    """Cores that one rank keeps busy between batches, without its workers; 1 if the job's CPU time is unknown."""
    if model.job_cpu_s is None or busy_s <= 0:
        return 1.0
    return max(0.1, (model.job_cpu_s / len(model.own) - making_s) / busy_s)


def _made(
    known: _Known, steps: RankSteps, made: Loading, loader: LoaderFacts | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of compute and of blocking for a sample of batches, scaled so that their means are those of all batches."""
    series = making_of(known.recording, steps, made, loader)
    computing, waiting = (values[_sample(values.size)] for values in (series["computing"], series["waiting"]))
    return _scaled(computing, made.cpu_s), _scaled(waiting, made.blocked_s)


def _rest(steps: RankSteps, mean_s: float) -> tuple[float, ...]:
    """Time a rank spends between its batches, for a sample of steps, without evaluations and checkpoints."""
    single = steps.sample & ~steps.epoch_start
    aside = steps.columns["evaluation"] + steps.columns["checkpoint"] + steps.columns["input_wait"]
    rest = np.clip(steps.length - aside, 0.0, None)[single]
    # two thirds of the sample, so that it does not repeat in step with the batches
    return _scaled(rest[_sample(rest.size)][: _BATCHES_SIMULATED * 2 // 3], mean_s) if rest.size else (mean_s,)


def _sample(size: int) -> NDArray[np.int64]:
    """Random row numbers, the same for the same size. Every kind of batch keeps its share and none recurs periodically."""
    return np.random.default_rng(0).permutation(size)[:_BATCHES_SIMULATED]


def _scaled(series: Array, mean: float) -> tuple[float, ...]:
    """The series scaled to this mean, so that a sample of a long run does not shift it."""
    now = float(series.mean()) if series.size else 0.0
    return tuple((series * (mean / now)).tolist()) if now > 0 else (mean,) * max(series.size, 1)


def measured_crowding(
    recording: Recording, steady: Mapping[int, RankSteps], loaders: tuple[LoaderFacts, ...], cores: float | None
) -> tuple[float, float] | None:
    """Range of the relative extra cost of computing on busy cores; None if the run does not show it.

    It comes from batches made with more and with fewer others in progress.
    """
    if not cores or cores <= 1:
        return None
    tables = [training_batches(recording, steps, training_loader(loaders, rank)) for rank, steps in steady.items()]
    tables = [table for table in tables if table.size]
    if sum(table.size for table in tables) < _BATCHES_MIN:
        return None
    rows = np.concatenate(tables)
    company = _company(rows)
    # relative to each rank's own mean: its samples may cost more than another's
    cost = np.concatenate([t["cpu_ns"] / max(float(t["cpu_ns"].mean()), 1.0) for t in tables])
    few = company < np.quantile(company, (0.1, 0.9)).mean()
    many = ~few
    if min(few.sum(), many.sum()) < _BATCHES_MIN / 4:
        return None
    apart = float(company[many].mean() - company[few].mean())
    if apart < _COMPANY_DIFFERENCE_MIN:
        return None
    ratio = float(cost[many].mean() / max(cost[few].mean(), 1e-9))
    error = 2 * ratio * float(np.hypot(_relative_error(cost[many]), _relative_error(cost[few])))
    slope = (cores - 1) / apart
    lo, hi = (slope * (r - 1) for r in (ratio - error, ratio + error))
    if hi - lo > CROWDING[1]:  # less precise than the prior
        return None
    return max(0.0, lo), max(_CROWDING_UNCERTAINTY, hi)


def _relative_error(values: Array) -> float:
    return float(values.std() / max(np.sqrt(values.size) * values.mean(), 1e-9))


def _company(rows: Table) -> Array:
    """Mean number of other batches in progress while each one was made."""
    start, end = rows["t_start_ns"].astype(np.float64), rows["t_end_ns"].astype(np.float64)
    edges = np.concatenate([start, end])
    order = np.argsort(edges, kind="stable")
    level = np.cumsum(np.concatenate([np.ones(start.size), -np.ones(end.size)])[order])
    times = edges[order]
    # lanes x time up to each edge; the level is constant between two edges
    filled = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    busy = np.interp(end, times, filled) - np.interp(start, times, filled)
    return np.asarray(busy / np.maximum(end - start, 1.0) - 1.0)
