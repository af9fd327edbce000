"""Predicts the step time for other numbers of loader workers: the only source of such predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rn50_advisor.advisor.model.forecast.worker_feed import CROWDING, WorkerFeed, WorkerModel
from rn50_advisor.advisor.model.forecast.worker_play import Side

__all__ = [
    "CROWDING",
    "LOCK_TAKEN",
    "Forecast",
    "WorkerFeed",
    "WorkerModel",
    "forecast",
    "step_with_cheaper_batches",
    "step_without_lock",
]

_HEADROOM = 1.15  # the loader should be a little faster than the step
_WORKERS_MAX = 64  # workers per rank, unless the run has more: more of them on one machine have not been measured
# A lock counts as always taken if at least this share of the workers' stack samples waits for it. (If each of four workers holds a
# lock for a fifth of its time, a tenth of the samples wait.)
LOCK_TAKEN = 0.3
_KNEE = 0.97  # of the best rate: two runs of one job differ by more than the remaining 3 %


@dataclass(frozen=True, slots=True)
class Forecast:
    """Step time at best and at worst, by the number of workers per rank from 0 on."""

    measured: int
    best_s: tuple[float, ...]
    worst_s: tuple[float, ...]

    @property
    def most(self) -> int:
        return len(self.best_s) - 1

    def step_s(self, workers: int) -> tuple[float, float]:
        """(best, worst) step time; beyond the last simulated count, that of the last."""
        at = min(max(workers, 0), self.most)
        return self.best_s[at], self.worst_s[at]

    def knee(self, cap: int | None = None) -> int:
        """The fewest workers, at least one, whose worst case is within 3 % of the best worst case of up to `cap` workers."""
        most = max(1, self.most if cap is None else min(self.most, cap))
        pace = min(self.worst_s[1 : most + 1])
        return next(n for n in range(1, most + 1) if self.worst_s[n] * _KNEE <= pace)

    def worth(self, cap: int | None = None) -> int:
        """The knee; 0 if workers are expected to gain less than 3 %."""
        knee = self.knee(cap)
        alone, helped = (0.5 * sum(self.step_s(n)) for n in (0, knee))
        return 0 if alone * _KNEE <= helped else knee


def forecast(model: WorkerModel) -> Forecast | None:
    """Step times for all worker counts worth considering; None if no rank's batches were seen."""
    feeds = _timed_feeds(model)
    if not feeds:
        return None
    most = _workers_to_simulate(model, feeds)
    sides = [Side(model, feeds, most, kind=kind).step_times() for kind in (True, False)]
    best, worst = np.minimum(*sides), np.maximum(*sides)
    measured = model.measured
    if measured < best.size:
        best[measured] = worst[measured] = model.step.step_s
    return Forecast(measured, tuple(best.tolist()), tuple(worst.tolist()))


def step_with_cheaper_batches(
    model: WorkerModel, remaining: float, *, hand_over: float = 1.0, waiting: float = 1.0
) -> tuple[float, float] | None:
    """(best, worst) step time with the present workers if a batch took the share `remaining` of its computing; None if no batch was seen.

    `hand_over`: share of the hand-over that remains at best, because a batch waits until its worker has collated the next one.
    `waiting`: share of its reads and waits that remains.
    """
    feeds = _timed_feeds(model)
    lighter = {
        rank: replace(
            feed,
            computing_s=tuple(s * remaining for s in feed.computing_s),
            waiting_s=tuple(s * waiting for s in feed.waiting_s),
            hand_over_s=(hand_over * feed.hand_over_s[0], feed.hand_over_s[1]),
        )
        for rank, feed in feeds.items()
    }
    # helper threads compute for the thread that makes batches: what it is spared they are spared, too
    made_s = sum(feed.threads * feed.batches * float(np.mean(feed.computing_s)) for feed in feeds.values())
    saved_s = (1 - remaining) * made_s
    saved_s /= model.step.hosts
    left_s = max(0.0, (model.step.job_cpu_s or 0.0) - saved_s)
    step = replace(model.step, job_cpu_s=None if model.step.job_cpu_s is None else left_s)
    return _played_against(model, replace(model, step=step), lighter)


def step_without_lock(model: WorkerModel, waiting: float) -> tuple[float, float] | None:
    """(best, worst) step time with the present workers if none waited for the lock that all share; None if no batch was seen.

    `waiting`: share of batch preparation time that workers wait for the lock.
    """
    free = {}
    for rank, feed in _timed_feeds(model).items():
        mean_s = float(np.mean(feed.waiting_s))
        left = max(0.0, 1.0 - waiting * feed.alone_s / mean_s) if mean_s > 0 else 1.0
        free[rank] = replace(feed, waiting_s=tuple(s * left for s in feed.waiting_s), locked_s=0.0)
    return _played_against(model, model, free)


def _timed_feeds(model: WorkerModel) -> dict[int, WorkerFeed]:
    return {rank: feed for rank, feed in model.feeds.items() if feed.computing_s and rank in model.step.own}


def _played_against(
    model: WorkerModel, changed: WorkerModel, feeds: Mapping[int, WorkerFeed]
) -> tuple[float, float] | None:
    """(best, worst) step time of the changed job. The present job is simulated too, so that errors of the forecast cancel out."""
    if not feeds:
        return None
    times = []
    for kind in (True, False):
        now, then = (
            Side(job, fed, max(1, model.measured), kind=kind).step_times()[model.measured]
            for job, fed in ((model, _timed_feeds(model)), (changed, feeds))
        )
        times.append(model.step.step_s * min(1.0, float(then / now)))
    return min(times), max(times)


def _workers_to_simulate(model: WorkerModel, feeds: Mapping[int, WorkerFeed]) -> int:
    """The largest worker count to simulate.

    It is the maximum of twice the present workers, the workers that keep up with the step at the lowest efficiency, and one per core.
    """
    cores = (model.step.allowed_cores or 0.0) / model.step.ranks_of_host
    efficiency = 1 / (1 + CROWDING[1])
    wanted = [_HEADROOM * feed.alone_s / max(efficiency * float(np.mean(feed.rest_s)), 1e-6) for feed in feeds.values()]
    return max(
        model.measured, int(min(_WORKERS_MAX, max(2 * model.measured, np.ceil(max(wanted)), np.floor(cores), 2)))
    )
