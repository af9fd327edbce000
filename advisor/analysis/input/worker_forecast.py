"""What the forecast over worker counts is made from: how each rank's batches are made and used, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.loading import Loading, making_of, training_batches
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.reading_limit import storage_ceiling
from rn50_advisor.advisor.model.analysis import JOB, LoaderFacts, training_loader
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import CROWDING, LOCK_TAKEN, WorkerFeed, WorkerModel
from rn50_advisor.advisor.model.free_cores import Cores
from rn50_advisor.advisor.model.recording import Recording, Table

Array = NDArray[np.float64]

_KEPT = 160  # batches of a run that are played through, as many as the model plays
# A batch from a worker to the loop where no run has shown it. Measured on two cores, from tiny batches on: 1.6 to 2.2 ms, beside other
# work; the best is what a pipe and two wake-ups take on cores that idle.
_HAND_OVER_S = (0.0003, 0.0022)
# And its bytes: their pages are mapped, touched for the first time, and given back.
_HAND_OVER_BYTES_PER_S = (20e9, 4e9)
# In a worker a batch goes into new pages of shared memory, and caches are cold after each sleep. Measured: 0.3 ms more for 0.1 MB, 0.5 and
# 1.8 for 0.2 MB, 3.3 for 0.8 MB, 3.0 for 3.1 MB.
_MOVED_S = (0.0002, 0.0008)
_MOVED_BYTES_PER_S = (4e9, 1e9)
# Of a batch of any size, the kernel's part in the training process: a descriptor is passed on, pages are mapped, a thread of the queue is
# woken to send the next index. With batches of 0.1 MB forward and backward were 0.3 to 0.39 ms in the kernel, making them was 0.11; without
# workers 0.01 to 0.03.
_HANDED_KERNEL_S = 0.0002
_LEAST_BATCHES = 40  # to tell what a batch costs in company from what it costs alone
_LEAST_CROWDING = 0.05  # that may stay undiscovered
_COMPANY = 0.5  # lanes: batches that differ less in how many were made beside them tell nothing


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the job when its feeds are told."""

    recording: Recording
    model: StepModel
    loaders: tuple[LoaderFacts, ...]
    values: Mapping[tuple[str, str], float]

    def of(self, name: str, rank: int | None = None) -> float | None:
        return self.values.get((name, JOB if rank is None else f"rank:{rank}"))


def worker_model(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    loading: Mapping[int, Loading | None],
    *,
    model: StepModel,
    loaders: tuple[LoaderFacts, ...],
    values: Mapping[tuple[str, str], float],
) -> WorkerModel | None:
    """None where nobody saw a batch being made, or where another library than torch has workers of its own kind."""
    known = _Known(recording, model, loaders, values)
    feeds = {}
    for rank, made in loading.items():
        loader = training_loader(loaders, rank)
        if made is not None and made.wall_s > 0 and not (loader and loader.library):
            feeds[rank] = _feed(known, steady[rank], made)
    if not feeds:
        return None
    other = _neighbours_cores(known)
    busy = (known.of("cpu.job_cores") or 0.0) + other
    measured = measured_crowding(recording, steady, loaders, model.allowed_cores)
    return WorkerModel(model, feeds, max(1.0, busy), other, measured or CROWDING)


def _neighbours_cores(known: _Known) -> float:
    """Of the cores that the job may use; on others neighbours are in nobody's way."""
    allowed, job, busy = (known.of(f"cpu.{name}") for name in ("allowed_cores", "job_cores", "host_busy_cores"))
    others = known.of("cpu.other_cores") or 0.0
    if allowed is None or job is None or busy is None:
        return others
    host, affinity = known.of("cpu.host_cores"), known.of("cpu.affinity_cores")
    return Cores(allowed, job, busy, others, host, affinity).taken or 0.0


def _feed(known: _Known, steps: RankSteps, made: Loading) -> WorkerFeed:
    rank, model = steps.rank, known.model
    own, loader = model.own[rank], training_loader(known.loaders, rank)
    batches = (loader.per_step if loader else None) or max(steps.per_step("micro_batches"), 1e-3)
    computing, waiting = _made(known, steps, made, loader)
    busy_s = sum(own.values()) - own["input_wait"] + model.wire_s + model.jitter_s
    delay_s = known.of("step.run_delay_s", rank) or 0.0
    if not made.workers:  # the line at the cores in the making is not on the way from batch to batch
        delay_s -= batches * made.delay_s
    delay_s = min(max(0.0, delay_s), 0.5 * busy_s)
    handed = known.of("fetch.hand_over_s", rank)
    reads = made.reads or bool(known.of("data.network_mount", rank))
    return WorkerFeed(
        workers=made.workers,
        computing_s=computing,
        waiting_s=waiting,
        # evaluation and checkpoints come now and then: while they run, workers can only fill their queues
        rest_s=_rest(steps, max(0.0, busy_s - delay_s - own["gap.evaluation"] - own["gap.checkpoint"]) / batches),
        batches=batches,
        begin_s=known.of("step.epoch_start_s", rank) or 0.0,
        first_s=_first_s(known, steps, made),
        delay_s=delay_s,
        reading_s=made.blocked_s if reads else 0.0,
        full_s=_full_s(known, made) if reads else 0.0,
        locked_s=_locked_s(known, made),
        kernel_s=made.system_s or 0.0,
        faults_s=_faults_s(known, rank, made, batches),
        index_s=(known.of("step.index_s", rank) or 0.0) / batches,
        hand_over_s=_hand_over(loader) if handed is None else (0.8 * handed, 1.2 * handed),
        moved_s=(0.0, 0.0) if made.workers else _moved(loader),
        prefetch=(loader.prefetch_factor if loader else None) or 2,
        training_cores=_training_cores(model, made.cpu_s * batches, busy_s),
    )


def _full_s(known: _Known, made: Loading) -> float:
    """A batch's share of the most that the storage gives, where that is known: all ranks read from it."""
    ceiling = storage_ceiling(known.of, made, known.model.hosts)
    return len(known.model.own) * made.samples / ceiling.samples_per_s if ceiling else 0.0


def _locked_s(known: _Known, made: Loading) -> float:
    """What a batch takes while the workers take turns at a lock: they make no more than now, however many they are."""
    taken = (known.of("loader.lock_share") or 0.0) >= LOCK_TAKEN
    return made.wall_s / made.workers if taken and made.workers else 0.0


def _first_s(known: _Known, steps: RankSteps, made: Loading) -> float:
    """Where workers make batches it is in `step.epoch_start_s`. Measured: 42 ms stayed at each begin, a batch took 39."""
    if made.workers:
        return 0.0
    begins = known.of("epoch.starts", steps.rank) or 0.0
    return begins * (made.wall_s - made.delay_s) / max(float(steps.count.sum()), 1.0)


def _faults_s(known: _Known, rank: int, made: Loading, batches: float) -> float:
    """Of the kernel's time in the step what comes with workers: it maps and unmaps the pages that they took, and hands over."""
    if not made.workers:
        return 0.0
    brought = batches * ((made.system_s or 0.0) + _HANDED_KERNEL_S)
    return min(known.of("step.system_s", rank) or 0.0, brought)


def _hand_over(loader: LoaderFacts | None) -> tuple[float, float]:
    """What taking a batch from a worker may cost the training thread, by its size, where no run has shown it."""
    size = (loader.batch_bytes if loader else None) or 0
    low, high = (fixed + size / rate for fixed, rate in zip(_HAND_OVER_S, _HAND_OVER_BYTES_PER_S, strict=True))
    return low, high


def _moved(loader: LoaderFacts | None) -> tuple[float, float]:
    """What making a batch in a worker may cost beyond making it in the training process, by its size."""
    size = (loader.batch_bytes if loader else None) or 0
    low, high = (fixed + size / rate for fixed, rate in zip(_MOVED_S, _MOVED_BYTES_PER_S, strict=True))
    return low, high


def _training_cores(model: StepModel, making_s: float, busy_s: float) -> float:
    """Cores that one rank keeps busy from batch to batch, its workers left out; one where the job's CPU time is unknown."""
    if model.job_cpu_s is None or busy_s <= 0:
        return 1.0
    return max(0.1, (model.job_cpu_s / len(model.own) - making_s) / busy_s)


def _made(
    known: _Known, steps: RankSteps, made: Loading, loader: LoaderFacts | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of a sample of batches, seconds of computing and of waiting; their means are those of all batches."""
    series = making_of(known.recording, steps, made, loader)
    computing, waiting = (values[_sample(values.size)] for values in (series["computing"], series["waiting"]))
    return _scaled(computing, made.cpu_s), _scaled(waiting, made.blocked_s)


def _rest(steps: RankSteps, mean_s: float) -> tuple[float, ...]:
    """What a rank does between its batches, of a sample of steps: as it varied, evaluation and checkpoints left out."""
    single = steps.sample & ~steps.epoch_start
    aside = steps.columns["evaluation"] + steps.columns["checkpoint"] + steps.columns["input_wait"]
    rest = np.clip(steps.length - aside, 0.0, None)[single]
    # half of the sample and a little more: it must not run in step with the batches
    return _scaled(rest[_sample(rest.size)][: _KEPT * 2 // 3], mean_s) if rest.size else (mean_s,)


def _sample(size: int) -> NDArray[np.int64]:
    """The same for the same size: rows in a random order, so that every kind of batch comes in its share and none in a rhythm."""
    return np.random.default_rng(0).permutation(size)[:_KEPT]


def _scaled(series: Array, mean: float) -> tuple[float, ...]:
    """The series with this mean. A few rows of a long run must not shift it."""
    now = float(series.mean()) if series.size else 0.0
    return tuple((series * (mean / now)).tolist()) if now > 0 else (mean,) * max(series.size, 1)


def measured_crowding(
    recording: Recording, steady: Mapping[int, RankSteps], loaders: tuple[LoaderFacts, ...], cores: float | None
) -> tuple[float, float] | None:
    """What computing costs more on busy cores than alone, from batches made in more and in less company; None: the run does not tell."""
    if not cores or cores <= 1:
        return None
    tables = [training_batches(recording, steps, training_loader(loaders, rank)) for rank, steps in steady.items()]
    tables = [table for table in tables if table.size]
    if sum(table.size for table in tables) < _LEAST_BATCHES:
        return None
    rows = np.concatenate(tables)
    company = _company(rows)
    # each rank against itself: its samples may be dearer than another's
    cost = np.concatenate([t["cpu_ns"] / max(float(t["cpu_ns"].mean()), 1.0) for t in tables])
    few = company < np.quantile(company, (0.1, 0.9)).mean()
    many = ~few
    if min(few.sum(), many.sum()) < _LEAST_BATCHES / 4:
        return None
    apart = float(company[many].mean() - company[few].mean())
    if apart < _COMPANY:
        return None
    ratio = float(cost[many].mean() / max(cost[few].mean(), 1e-9))
    error = 2 * ratio * float(np.hypot(_relative_error(cost[many]), _relative_error(cost[few])))
    slope = (cores - 1) / apart
    lo, hi = (slope * (r - 1) for r in (ratio - error, ratio + error))
    if hi - lo > CROWDING[1]:  # it tells less than is known beforehand
        return None
    return max(0.0, lo), max(_LEAST_CROWDING, hi)


def _relative_error(values: Array) -> float:
    return float(values.std() / max(np.sqrt(values.size) * values.mean(), 1e-9))


def _company(rows: Table) -> Array:
    """How many other batches were in the making while each one was, on average."""
    start, end = rows["t_start_ns"].astype(np.float64), rows["t_end_ns"].astype(np.float64)
    edges = np.concatenate([start, end])
    order = np.argsort(edges, kind="stable")
    level = np.cumsum(np.concatenate([np.ones(start.size), -np.ones(end.size)])[order])
    times = edges[order]
    # lanes x time up to each edge; between two of them the level stands
    filled = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    busy = np.interp(end, times, filled) - np.interp(start, times, filled)
    return np.asarray(busy / np.maximum(end - start, 1.0) - 1.0)
