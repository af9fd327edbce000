"""How a job's ranks are fed: the input of predictions for other numbers of loader workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.model.forecast.step_model import StepModel

# Slowdown of compute with all cores busy over one, since memory, caches and clocks are shared: parallel efficiency 0.7
# to 1.0, until a run has measured it. (Per worker at four workers, decoding: 62-89 %.)
CROWDING = (0.0, 0.43)
# Without workers a batch is made where it is used. The kernel's part of a worker's computing was for shared memory, and who sleeps between
# batches computes with cold caches. Measured: 0.42 ms (0.12 in the kernel) became 0.12, and 3.76 ms (2.42 in the kernel) became 0.76.
_SHARED_MEMORY = (1.0, 0.7)  # of the kernel's part, at best and at worst
_COLD_S = 0.0006  # of a batch, at best
_COLD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class WorkerFeed:
    """How one rank is fed, in seconds. The first two series belong together, batch by batch; they and `rest_s` are repeated."""

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
        """Share of a core used by a worker that always has a batch to make."""
        return float(np.mean(self.computing_s)) / max(self.alone_s, 1e-9)


@dataclass(frozen=True, slots=True)
class WorkerModel:
    step: StepModel
    feeds: Mapping[int, WorkerFeed]
    busy_cores: float = 1.0  # on the host in this run, by anybody
    other_cores: float = 0.0  # of these, by other jobs
    crowding: tuple[float, float] = CROWDING

    @property
    def crowding_measured(self) -> bool:
        return self.crowding != CROWDING

    @property
    def measured(self) -> int:
        return max((feed.workers for feed in self.feeds.values()), default=0)
