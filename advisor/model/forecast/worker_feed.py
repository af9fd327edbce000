"""The timing of each rank's data loading: the input of predictions for other numbers of loader workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.model.forecast.step_model import StepModel

# Slowdown of compute when all cores are busy instead of one, because memory, caches and clocks are shared. It stands for a parallel
# efficiency of 0.7 to 1.0, until a run has measured it. (Decoding with four workers: 62-89 % per worker.)
CROWDING = (0.0, 0.43)
# Without workers a batch is made where it is used. A worker's kernel time is for shared memory, and after sleeping between batches it
# computes with cold caches. Measured: 0.42 ms (0.12 in the kernel) became 0.12, and 3.76 ms (2.42 in the kernel) became 0.76.
_SHARED_MEMORY = (1.0, 0.7)  # share of a worker's kernel time that goes, at best and at worst
_COLD_S = 0.0006  # most time of a batch that goes with cold caches, at best
_COLD_SHARE = 0.5  # and as a share of its computing


@dataclass(frozen=True, slots=True)
class WorkerFeed:
    """Data loading of one rank, in seconds.

    `computing_s` and `waiting_s` belong together, batch by batch. A simulation repeats these series and `rest_s`.
    """

    workers: int  # of this run; 0: the training process loads
    computing_s: tuple[float, ...]
    waiting_s: tuple[float, ...]  # neither computing nor waiting for a core: reads, sleeps, locks
    # from a batch's arrival until the next fetch, without waiting for a core
    rest_s: tuple[float, ...]
    batches: float = 1.0  # per step
    begin_s: float = 0.0  # per step: epoch starts, which the number of workers does not change
    first_s: float = 0.0  # per step: first batches of epochs made in the training process; workers have none ready
    delay_s: float = 0.0  # per step: the training thread waited for a core between its fetches
    reading_s: float = 0.0  # mean of a batch, part of `waiting_s`: reads from storage that all workers share
    full_s: float = 0.0  # reads of a batch at the storage limit that all workers share; 0: no limit is known
    locked_s: float = 0.0  # of a batch while all workers take turns at a lock that is always taken; 0: none is known
    kernel_s: float = 0.0  # mean of a batch, part of `computing_s`: kernel time for shared memory
    index_s: float = 0.0  # of a batch: the training thread draws the indices of a later batch before it gets this one
    faults_s: float = 0.0  # per step: kernel time of forward and backward, mostly page faults in shared memory
    hand_over_s: tuple[float, float] = (0.0, 0.0)  # from a worker's finished batch to the loop, at best and at worst
    moved_s: tuple[float, float] = (0.0, 0.0)  # extra cost of a batch in a worker if this run had none, best and worst
    prefetch: int = 2
    training_cores: float = 1.0  # cores that the rank keeps busy between its fetches
    threads: float = 1.0  # CPU seconds of all threads of a worker for each of the one that makes batches

    @property
    def alone_s(self) -> float:
        """Seconds to make a batch without waiting for a core."""
        return float(np.mean(self.computing_s) + np.mean(self.waiting_s))

    @property
    def in_place_s(self) -> tuple[float, float]:
        """Seconds to make a batch in the training process, at best and at worst."""
        computing, waiting = float(np.mean(self.computing_s)), float(np.mean(self.waiting_s))
        if not self.workers:
            return self.alone_s, self.alone_s
        best, worst = (computing - share * self.kernel_s for share in _SHARED_MEMORY)
        return waiting + best - min(_COLD_SHARE * best, _COLD_S), waiting + worst

    @property
    def computing_share(self) -> float:
        """Share of a core that a worker uses if it always has a batch to make."""
        return float(np.mean(self.computing_s)) / max(self.alone_s, 1e-9)


@dataclass(frozen=True, slots=True)
class WorkerModel:
    step: StepModel
    feeds: Mapping[int, WorkerFeed]
    busy_cores: float = 1.0  # on the host in this run, by any process
    other_cores: float = 0.0  # part of these used by other jobs
    crowding: tuple[float, float] = CROWDING

    @property
    def crowding_measured(self) -> bool:
        return self.crowding != CROWDING

    @property
    def measured(self) -> int:
        return max((feed.workers for feed in self.feeds.values()), default=0)
