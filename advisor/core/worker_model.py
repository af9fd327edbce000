"""How long a step would take with another number of loader workers: the only source of predictions about worker counts.

A DataLoader is played through batch by batch, for all counts at once: workers take turns, each makes its batches one after the other, and
an index is sent when an earlier batch is taken, so workers run ahead by `prefetch` batches each and no further. Batch times vary as they
did in the run: the loop waits for a slow one even where the mean rate suffices. What cores, caches and storage share comes on top, once
taken kindly and once not: the truth lies between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.core.step_model import WARMER, StepModel

Array = NDArray[np.float64]

# What computing takes longer with all cores busy than with one, for memory, caches and clocks are common to them: parallel efficiency 0.7
# to 1.0, until a run has measured it. (Per worker at four workers, decoding: 62-89 %.)
CROWDING = (0.0, 0.43)
_ROUNDS = 3  # in which step times and the cores' load settle on each other
# Without workers a batch is made where it is used. The kernel's part of a worker's computing was for shared memory, and who sleeps between
# batches computes with cold caches. Measured: 0.42 ms (0.12 in the kernel) became 0.12, and 3.76 ms (2.42 in the kernel) became 0.76.
_SHARED_MEMORY = (1.0, 0.7)  # of the kernel's part, at best and at worst
_COLD_S = 0.0006  # of a batch, at best
_COLD_SHARE = 0.5
_TOUCHED = (1.0, 0.5)  # of `faults_s`: at worst half of it is the heap's own coming and going
_PLAYED = 160  # batches: more would tell the same, and a live screen plays them every second
_PLAYED_FROM = 0.3  # of them: before it, empty queues fill
_HEADROOM = 1.15  # the loader should be a little faster than the step
_MOST = 64  # workers per rank: beyond it nobody has measured how they share a machine
# Of the looks at workers: so many find one waiting for a lock only if the others leave it no rest. (Where four workers hold one for a fifth
# of their time each, a tenth would.)
LOCK_TAKEN = 0.3
_KNEE = 0.97  # of the best rate: two runs of one job differ by more than the rest


@dataclass(frozen=True, slots=True)
class Feed:
    """How one rank is fed, in seconds. The first two series belong together, batch by batch; they and `rest_s` repeat."""

    workers: int  # there are; 0: the training process loads
    computing_s: tuple[float, ...]
    waiting_s: tuple[float, ...]  # neither computing nor in line for a core: reads, sleeps, locks
    # from a batch's arrival until the next one is asked for, without standing in line for a core
    rest_s: tuple[float, ...]
    batches: float = 1.0  # of a step
    begin_s: float = 0.0  # begins of epochs, per step: no number of workers changes them
    first_s: float = 0.0  # per step: first batches of epochs, made where each was; workers have none ready
    delay_s: float = 0.0  # per step: the training thread stood in line for a core, on its way from batch to batch
    reading_s: float = 0.0  # mean of a batch, part of `waiting_s`: reads from what all workers share
    full_s: float = 0.0  # reads of a batch at the most that is given to all workers together; 0: no such limit is known
    locked_s: float = 0.0  # of a batch for which all workers take turns, at a lock that has no rest; 0: none is known
    kernel_s: float = 0.0  # mean of a batch, part of `computing_s`: in workers mostly taking shared memory
    index_s: float = 0.0  # of a batch: the training thread draws the indices of a later one before it has this one
    faults_s: float = 0.0  # per step: forward and backward inside the kernel, mostly touching what came in it
    hand_over_s: tuple[float, float] = (0.0, 0.0)  # from a worker's batch to the loop having it, at best and at worst
    moved_s: tuple[float, float] = (0.0, 0.0)  # what a batch costs a worker beyond `computing_s`, made elsewhere so far
    prefetch: int = 2
    training_cores: float = 1.0  # that the rank keeps busy between its fetches

    @property
    def alone_s(self) -> float:
        """Making a batch with a core to itself."""
        return float(np.mean(self.computing_s) + np.mean(self.waiting_s))

    @property
    def in_place_s(self) -> tuple[float, float]:
        """Making a batch in the training process, at best and at worst."""
        computing, waiting = float(np.mean(self.computing_s)), float(np.mean(self.waiting_s))
        if not self.workers:
            return self.alone_s, self.alone_s
        best, worst = (computing - share * self.kernel_s for share in _SHARED_MEMORY)
        return waiting + best - min(_COLD_SHARE * best, _COLD_S), waiting + worst

    @property
    def computing_share(self) -> float:
        """Of a core, what a worker takes that always has a batch to make."""
        return float(np.mean(self.computing_s)) / max(self.alone_s, 1e-9)


@dataclass(frozen=True, slots=True)
class WorkerModel:
    step: StepModel
    feeds: Mapping[int, Feed]
    busy_cores: float = 1.0  # on the host in this run, by anybody
    other_cores: float = 0.0  # of these, by other jobs
    crowding: tuple[float, float] = CROWDING

    @property
    def crowding_measured(self) -> bool:
        return self.crowding != CROWDING

    @property
    def measured(self) -> int:
        return max((feed.workers for feed in self.feeds.values()), default=0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Step time by the number of workers per rank, from 0 on: at best and at worst."""

    measured: int
    best_s: tuple[float, ...]
    worst_s: tuple[float, ...]

    @property
    def most(self) -> int:
        return len(self.best_s) - 1

    def step_s(self, workers: int) -> tuple[float, float]:
        """(best, worst); beyond the last count that was played, that one's."""
        at = min(max(workers, 0), self.most)
        return self.best_s[at], self.worst_s[at]

    def knee(self, cap: int | None = None) -> int:
        """The fewest workers, at least one, that come near the best that up to `cap` of them can do, even at worst."""
        most = max(1, self.most if cap is None else min(self.most, cap))
        pace = min(self.worst_s[1 : most + 1])
        return next(n for n in range(1, most + 1) if self.worst_s[n] * _KNEE <= pace)

    def worth(self, cap: int | None = None) -> int:
        """The knee; none where workers are expected to bring next to nothing."""
        knee = self.knee(cap)
        alone, helped = (0.5 * sum(self.step_s(n)) for n in (0, knee))
        return 0 if alone * _KNEE <= helped else knee


def forecast(model: WorkerModel) -> Forecast | None:
    """Steps with any number of workers that is worth a look; None where no rank's batches were seen."""
    feeds = _seen(model)
    if not feeds:
        return None
    most = _worth_a_look(model, feeds)
    sides = [_Side(model, feeds, most, kind=kind).step_times() for kind in (True, False)]
    best, worst = np.minimum(*sides), np.maximum(*sides)
    measured = model.measured
    if measured < best.size:
        best[measured] = worst[measured] = model.step.step_s
    return Forecast(measured, tuple(best.tolist()), tuple(worst.tolist()))


def step_with_cheaper_batches(model: WorkerModel, remaining: float) -> tuple[float, float] | None:
    """(best, worst) step time, with the workers there are, if a batch took `remaining` of its computing; None where none was seen."""
    feeds = _seen(model)
    lighter = {
        rank: replace(feed, computing_s=tuple(s * remaining for s in feed.computing_s)) for rank, feed in feeds.items()
    }
    saved_s = sum((1 - remaining) * feed.batches * float(np.mean(feed.computing_s)) for feed in feeds.values())
    saved_s /= model.step.hosts
    left_s = max(0.0, (model.step.job_cpu_s or 0.0) - saved_s)
    step = replace(model.step, job_cpu_s=None if model.step.job_cpu_s is None else left_s)
    return _played_against(model, replace(model, step=step), lighter)


def step_without_lock(model: WorkerModel, waiting: float) -> tuple[float, float] | None:
    """(best, worst) step time, with the workers there are, if none waited for the lock of all; None where no batch was seen.

    `waiting`: of the time of making a batch, what they wait for it.
    """
    free = {}
    for rank, feed in _seen(model).items():
        mean_s = float(np.mean(feed.waiting_s))
        left = max(0.0, 1.0 - waiting * feed.alone_s / mean_s) if mean_s > 0 else 1.0
        free[rank] = replace(feed, waiting_s=tuple(s * left for s in feed.waiting_s), locked_s=0.0)
    return _played_against(model, model, free)


def _seen(model: WorkerModel) -> dict[int, Feed]:
    return {rank: feed for rank, feed in model.feeds.items() if feed.computing_s and rank in model.step.own}


def _played_against(model: WorkerModel, changed: WorkerModel, feeds: Mapping[int, Feed]) -> tuple[float, float] | None:
    """(best, worst) step time of the changed job. Today's is played too: what the forecast gets wrong of it cancels out."""
    if not feeds:
        return None
    times = []
    for kind in (True, False):
        now, then = (
            _Side(job, fed, max(1, model.measured), kind=kind).step_times()[model.measured]
            for job, fed in ((model, _seen(model)), (changed, feeds))
        )
        times.append(model.step.step_s * min(1.0, float(then / now)))
    return min(times), max(times)


def _worth_a_look(model: WorkerModel, feeds: Mapping[int, Feed]) -> int:
    """Twice the workers there are, what keeps up with the step at the least efficiency, one for each core: the most of these."""
    cores = (model.step.allowed_cores or 0.0) / model.step.ranks_of_host
    efficiency = 1 / (1 + CROWDING[1])
    wanted = [_HEADROOM * feed.alone_s / max(efficiency * float(np.mean(feed.rest_s)), 1e-6) for feed in feeds.values()]
    return int(min(_MOST, max(2 * model.measured, np.ceil(max(wanted)), np.floor(cores), 2)))


class _Side:
    """One bound of the forecast: `kind` is when cores never queue or crowd, readers never share a disk and handing over is quick."""

    def __init__(self, model: WorkerModel, feeds: Mapping[int, Feed], most: int, *, kind: bool) -> None:
        self.model, self.feeds, self.kind = model, feeds, kind
        self.slow = max(feeds, key=lambda rank: feeds[rank].batches * feeds[rank].alone_s)
        self.feed = feeds[self.slow]
        self.counts = np.arange(1, most + 1)
        self.crowding = model.crowding[0 if kind else 1]
        side = 0 if kind else 1
        self.hand_over_s, self.moved_s = self.feed.hand_over_s[side] + self.feed.index_s, self.feed.moved_s[side]
        # what only workers bring with them is not in the CPU time of a job without any
        brought = [feed.batches * (feed.moved_s[side] + feed.hand_over_s[side]) for feed in feeds.values()]
        self.brought_s = sum(brought) * model.step.ranks_of_host / len(feeds) if self.feed.workers == 0 else 0.0
        allowed = model.step.allowed_cores or 0.0
        self.cores = allowed if kind else max(0.5 * allowed, allowed - model.other_cores)

    def step_times(self) -> Array:
        """Step seconds by workers, from none on."""
        ones = np.ones(self.counts.size)
        worker, trainer, work = ones, ones, ones
        times = self._times(worker, trainer, work)
        for _ in range(_ROUNDS if self.cores > 0 and not (self.kind and self.crowding == 0) else 0):
            work = self._crowded(times, work)
            in_line = self._in_line(times, worker, trainer)
            worker, trainer = (0.5 * (now + line * work) for now, line in zip((worker, trainer), in_line, strict=True))
            times = self._times(worker, trainer, work)
        if self.kind and self.feed.workers == 0:
            # making batches on the same core pushes the model's data out of its caches: where it took a sixth of the step, computing took
            # 0.90 to 1.06 times as long without, 0.97 on average
            warm = 1.0 - WARMER * np.clip(1.0 - times / self.model.step.step_s, 0.0, 1.0)
            times = self._times(worker, trainer * warm, work)
        return np.concatenate([[self._in_process()], times])

    def _times(self, worker: Array, trainer: Array, work: Array) -> Array:
        feed = self.feed
        waits = feed.batches * _waits(feed, self.counts, worker, trainer, self)
        # at worst reads are as quick as they can be: any number of workers share them
        shared_s = 0.0 if self.kind else feed.reading_s / max(feed.workers, 1)
        full_s = max(feed.full_s, shared_s, feed.locked_s)
        waits = np.maximum(waits, feed.batches * (full_s - float(np.mean(feed.rest_s)) * trainer))
        return self._step_s(waits, trainer, work)

    def _step_s(self, waits: Array, trainer: Array, work: Array) -> Array:
        """As StepModel.step_if, for all counts at once: each rank's own time with this wait, and the slowest of them."""
        step, slowest = self.model.step, np.zeros(waits.size)
        for rank, phases in step.own.items():
            feed = self.feeds.get(rank, self.feed)
            busy = sum(phases.values()) - phases["input_wait"]
            relief = max(0.5, 1.0 - feed.delay_s / busy) if busy > 0 else 1.0
            lighter = self.feed.batches * self.feed.alone_s - feed.batches * feed.alone_s
            wait = feed.begin_s + feed.first_s + np.maximum(0.0, waits - lighter / self.counts)
            slowest = np.maximum(slowest, busy * relief * trainer + wait)
        now = step.slowest_s
        scale = np.minimum(1.0, slowest / now) if now > 0 else 1.0
        floor = work * self._job_cpu_s() / self.cores if self.cores > 0 else 0.0
        return np.asarray(np.maximum(np.maximum(slowest + step.wire_s + step.jitter_s * scale, floor), 1e-9))

    def _job_cpu_s(self) -> float:
        """Of a step with workers, on all ranks; 0 where it is unknown."""
        return self.model.step.job_cpu_s + self.brought_s if self.model.step.job_cpu_s else 0.0

    def _in_process(self) -> float:
        """Without workers: making and training take turns, on a core of their own and without shared memory."""
        step, changes = self.model.step, {}
        for rank, phases in step.own.items():
            feed = self.feeds.get(rank, self.feed)
            relief = _relief(feed, phases, kind=self.kind)
            changes.update({(rank, phase): seconds * relief[phase] for phase, seconds in phases.items()})
            changes[rank, "input_wait"] = feed.begin_s + feed.batches * (
                feed.in_place_s[0 if self.kind else 1] + feed.index_s
            )
        after_s = step.step_if(changes)
        return step.at_best(after_s) if self.kind and after_s < step.step_s else after_s

    def _crowded(self, times: Array, work: Array) -> Array:
        """What work costs with the cores as busy as they would be, over what it cost with them as busy as they were."""
        cores = self.model.step.allowed_cores or 0.0  # neighbours' too: they are busy, and so the caches
        if cores <= 1 or not self.model.step.job_cpu_s:
            return np.ones(times.size)
        busy = work * self._job_cpu_s() / times + self.model.other_cores
        slope = self.crowding / (cores - 1)
        then, now = (1 + slope * (np.clip(x, 1.0, cores) - 1) for x in (busy, self.model.busy_cores))
        return np.asarray(then / now)

    def _in_line(self, times: Array, worker: Array, trainer: Array) -> tuple[Array, Array]:
        """How much longer a worker and a training thread take because others stand at the cores too."""
        feed, ranks = self.feed, round(self.model.step.ranks_of_host)
        if self.kind:
            return np.ones(times.size), np.ones(times.size)
        making, rest = float(np.mean(feed.computing_s)) + self.moved_s, float(np.mean(feed.rest_s))
        share = min(1.0, feed.training_cores)  # what does not compute does not queue
        crowd = _Crowd(
            cores=self.cores,
            threads=max(1.0, feed.training_cores),
            making=np.minimum(1.0, feed.batches * making * worker / (self.counts * times)),
            training=share * np.minimum(1.0, feed.batches * rest * trainer / times),
        )
        made = crowd.stretch(1.0, workers=ranks * self.counts - 1, trainers=ranks)
        trained = crowd.stretch(crowd.threads, workers=ranks * self.counts, trainers=ranks - 1)
        return made, 1.0 + share * (trained - 1.0)


def _relief(feed: Feed, phases: Mapping[str, float], *, kind: bool) -> dict[str, float]:
    """By phase, what is left of a rank's own time when nothing comes in shared memory and, if `kind`, it stands in no line."""
    busy = sum(phases.values()) - phases["input_wait"]
    line = max(0.5, 1.0 - feed.delay_s / busy) if kind and busy > 0 else 1.0
    computing = phases.get("forward", 0.0) + phases.get("backward", 0.0)
    faults_s = _TOUCHED[0 if kind else 1] * feed.faults_s
    touched = max(0.5, 1.0 - faults_s / computing) if computing > 0 else 1.0
    return {phase: line * (touched if phase in ("forward", "backward") else 1.0) for phase in phases}


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Who wants a core by chance: shares of the time in which one worker and one rank's training do."""

    cores: float
    threads: float  # of a rank's training
    making: Array
    training: Array

    def stretch(self, own: float, *, workers: NDArray[np.int64], trainers: int) -> Array:
        """Mean of max(1, threads that want a core / cores), for one who wants `own` of them besides these others."""
        mean = (own + workers * self.making + trainers * self.threads * self.training) / self.cores
        spread = workers * self.making * (1 - self.making)
        spread = spread + trainers * self.threads**2 * self.training * (1 - self.training)
        spread = np.sqrt(np.maximum(spread, 1e-12)) / self.cores
        z = np.clip((mean - 1) / spread, -30, 30)
        below = 0.5 * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))  # the normal distribution, to 0.0004
        return np.asarray(1 + (mean - 1) * below + spread * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def _waits(feed: Feed, counts: NDArray[np.int64], worker: Array, trainer: Array, side: _Side) -> Array:
    """Mean wait for a batch by the number of workers: `worker` and `trainer` stretch their computing."""
    computing, waiting, rest = (np.array(series) for series in (feed.computing_s, feed.waiting_s, feed.rest_s))
    computing, hand_over_s = computing + side.moved_s, side.hand_over_s
    columns, first = np.arange(counts.size), int(_PLAYED_FROM * _PLAYED)
    done, taken = np.zeros((_PLAYED, counts.size)), np.zeros((_PLAYED, counts.size))
    asked = np.zeros(counts.size)
    total = np.zeros(counts.size)
    ahead = counts * feed.prefetch
    for k in range(_PLAYED):
        # what lies before the first batch is a row still zero
        begun = done[np.maximum(k - counts, -1), columns]
        sent = taken[np.maximum(k - ahead, -1), columns]
        done[k] = np.maximum(begun, sent) + computing[k % computing.size] * worker + waiting[k % waiting.size]
        taken[k] = np.maximum(asked, done[k]) + hand_over_s
        if k >= first:
            total += taken[k] - asked
        asked = taken[k] + rest[k % rest.size] * trainer
    # many workers' first batches are all there is to play: their mean rate bounds them still
    slowest = (float(computing.mean()) * worker + float(waiting.mean())) / counts
    return np.maximum(total / (_PLAYED - first), np.maximum(hand_over_s, slowest - float(rest.mean()) * trainer))
