"""Simulates a DataLoader batch by batch, for all numbers of workers at once, to predict the step time with each number.

Workers take turns, and each makes its batches one after the other. The loop sends an index when it takes an earlier batch, so each worker
runs at most `prefetch` batches ahead. Batch times vary as in the run: the loop waits for a slow batch even if the mean rate suffices.
Contention for cores, caches and storage is added twice, optimistically and pessimistically; the truth lies between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.model.forecast.worker_feed import WorkerFeed, WorkerModel

Array = NDArray[np.float64]

_ROUNDS = 3  # iterations until step times and the load of the cores agree
_TOUCHED = (1.0, 0.5)  # share of `faults_s` that goes without workers: at worst, half of it is the heap's own
_PLAYED = 160  # batches: more give the same result, and a live screen simulates them every second
_PLAYED_FROM = 0.3  # share of them that is not counted, because empty queues fill first


class Side:
    """One bound of the forecast.

    `kind` is the optimistic bound: no queueing for cores, the least crowding, no shared disk and the fastest hand-over.
    """

    def __init__(self, model: WorkerModel, feeds: Mapping[int, WorkerFeed], most: int, *, kind: bool) -> None:
        self.model, self.feeds, self.kind = model, feeds, kind
        self.slow = max(feeds, key=lambda rank: feeds[rank].batches * feeds[rank].alone_s)
        self.feed = feeds[self.slow]
        self.counts = np.arange(1, most + 1)
        self.crowding = model.crowding[0 if kind else 1]
        side = 0 if kind else 1
        self.hand_over_s, self.moved_s = self.feed.hand_over_s[side] + self.feed.index_s, self.feed.moved_s[side]
        # the CPU time of a job without workers lacks the costs that workers add
        brought = [feed.batches * (feed.moved_s[side] + feed.hand_over_s[side]) for feed in feeds.values()]
        self.brought_s = sum(brought) * model.step.ranks_of_host / len(feeds) if self.feed.workers == 0 else 0.0
        allowed = model.step.allowed_cores or 0.0
        self.cores = allowed if kind else max(0.5 * allowed, allowed - model.other_cores)

    def step_times(self) -> Array:
        """Step seconds by number of workers, from 0 on."""
        ones = np.ones(self.counts.size)
        worker, trainer, work = ones, ones, ones
        times = self._times(worker, trainer, work)
        for _ in range(_ROUNDS if self.cores > 0 and not (self.kind and self.crowding == 0) else 0):
            work = self._crowded(times, work)
            in_line = self._in_line(times, worker, trainer)
            worker, trainer = (0.5 * (now + line * work) for now, line in zip((worker, trainer), in_line, strict=True))
            times = self._times(worker, trainer, work)
        if self.kind and self.feed.workers == 0:
            # Making batches on the same core pushes the model's data out of its caches. Where it took a sixth of the step, computing
            # without it took 0.90 to 1.06 times as long, 0.97 on average.
            warm = 1.0 - self.model.step.warmer * np.clip(1.0 - times / self.model.step.step_s, 0.0, 1.0)
            times = self._times(worker, trainer * warm, work)
        return np.concatenate([[self._in_process()], times])

    def _times(self, worker: Array, trainer: Array, work: Array) -> Array:
        feed = self.feed
        waits = feed.batches * _waits(feed, self.counts, worker, trainer, self)
        # at worst, storage is at its limit already, and more workers only share it
        shared_s = 0.0 if self.kind else feed.reading_s / max(feed.workers, 1)
        full_s = max(feed.full_s, shared_s, feed.locked_s)
        waits = np.maximum(waits, feed.batches * (full_s - float(np.mean(feed.rest_s)) * trainer))
        return self._step_s(waits, trainer, work)

    def _step_s(self, waits: Array, trainer: Array, work: Array) -> Array:
        """Like StepModel.step_if for all counts at once, with these waits as each rank's wait for input."""
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
        """CPU seconds per step of all ranks and workers; 0 if unknown."""
        return self.model.step.job_cpu_s + self.brought_s if self.model.step.job_cpu_s else 0.0

    def _in_process(self) -> float:
        """Step seconds without workers: making batches and training alternate in one process, without shared memory."""
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
        """The factor on the cost of work when the load of the cores changes from the measured to the predicted one."""
        cores = self.model.step.allowed_cores or 0.0  # neighbours' cores too: they use the same caches
        if cores <= 1 or not self.model.step.job_cpu_s:
            return np.ones(times.size)
        busy = work * self._job_cpu_s() / times + self.model.other_cores
        slope = self.crowding / (cores - 1)
        then, now = (1 + slope * (np.clip(x, 1.0, cores) - 1) for x in (busy, self.model.busy_cores))
        return np.asarray(then / now)

    def _in_line(self, times: Array, worker: Array, trainer: Array) -> tuple[Array, Array]:
        """Slowdown of a worker and of a training thread because other threads queue for the cores."""
        feed, ranks = self.feed, round(self.model.step.ranks_of_host)
        if self.kind:
            return np.ones(times.size), np.ones(times.size)
        making, rest = float(np.mean(feed.computing_s)) + self.moved_s, float(np.mean(feed.rest_s))
        share = min(1.0, feed.training_cores)  # only computing threads queue
        crowd = _Crowd(
            cores=self.cores,
            threads=max(1.0, feed.training_cores),
            making=np.minimum(1.0, feed.batches * making * worker / (self.counts * times)),
            training=share * np.minimum(1.0, feed.batches * rest * trainer / times),
        )
        made = crowd.stretch(1.0, workers=ranks * self.counts - 1, trainers=ranks)
        trained = crowd.stretch(crowd.threads, workers=ranks * self.counts, trainers=ranks - 1)
        return made, 1.0 + share * (trained - 1.0)


def _relief(feed: WorkerFeed, phases: Mapping[str, float], *, kind: bool) -> dict[str, float]:
    """Share of a rank's own time that remains, by phase, without shared memory and, if `kind`, without waiting for a core."""
    busy = sum(phases.values()) - phases["input_wait"]
    line = max(0.5, 1.0 - feed.delay_s / busy) if kind and busy > 0 else 1.0
    computing = phases.get("forward", 0.0) + phases.get("backward", 0.0)
    faults_s = _TOUCHED[0 if kind else 1] * feed.faults_s
    touched = max(0.5, 1.0 - faults_s / computing) if computing > 0 else 1.0
    return {phase: line * (touched if phase in ("forward", "backward") else 1.0) for phase in phases}


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Random demand for cores. `making` and `training`: shares of the time in which a worker and a rank's training want cores."""

    cores: float
    threads: float  # cores that a rank's training uses at once
    making: Array
    training: Array

    def stretch(self, own: float, *, workers: NDArray[np.int64], trainers: int) -> Array:
        """Mean of max(1, wanted cores / cores) for a process that wants `own` cores beside these workers and trainers."""
        mean = (own + workers * self.making + trainers * self.threads * self.training) / self.cores
        spread = workers * self.making * (1 - self.making)
        spread = spread + trainers * self.threads**2 * self.training * (1 - self.training)
        spread = np.sqrt(np.maximum(spread, 1e-12)) / self.cores
        z = np.clip((mean - 1) / spread, -30, 30)
        below = 0.5 * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))  # the normal distribution, to 0.0004
        return np.asarray(1 + (mean - 1) * below + spread * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def _waits(feed: WorkerFeed, counts: NDArray[np.int64], worker: Array, trainer: Array, side: Side) -> Array:
    """Mean wait for a batch by number of workers. `worker` and `trainer` are factors on their computing."""
    computing, waiting, rest = (np.array(series) for series in (feed.computing_s, feed.waiting_s, feed.rest_s))
    computing, hand_over_s = computing + side.moved_s, side.hand_over_s
    batch, columns, first = np.arange(_PLAYED), np.arange(counts.size), int(_PLAYED_FROM * _PLAYED)
    done, taken, waited = (np.zeros((_PLAYED, counts.size)) for _ in range(3))
    # places in `done` and `taken`; before the first batch it is the last row, which is zero until the end
    begun, sent = (
        np.maximum(batch[:, None] - apart, -1) % _PLAYED * counts.size + columns
        for apart in (counts, counts * feed.prefetch)
    )
    made = computing[batch % computing.size][:, None] * worker
    between = rest[batch % rest.size][:, None] * trainer
    asked = np.zeros(counts.size)
    for k in range(_PLAYED):
        done[k] = ready = np.maximum(done.take(begun[k]), taken.take(sent[k])) + made[k] + waiting[k % waiting.size]
        taken[k] = got = np.maximum(asked, ready) + hand_over_s
        waited[k] = got - asked
        asked = got + between[k]
    total = waited[first:].sum(axis=0)
    # With many workers only their first batches are simulated; their mean rate still bounds the wait from below.
    slowest = (float(computing.mean()) * worker + float(waiting.mean())) / counts
    least = np.maximum(hand_over_s, slowest - float(rest.mean()) * trainer)
    return np.asarray(np.maximum(total / (_PLAYED - first), least))
