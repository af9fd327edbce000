"""Changes during training: in speed, once or periodically, and in the memory of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Coincidence:
    """A host metric before and after a speed change, each a mean over its interval."""

    metric: str
    scope: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """Steps took longer from `step` on. `rank` None: on all ranks; `until_s` None: to the end."""

    step: int
    t_s: float  # since the job's start
    until_s: float | None
    before_s: float  # typical step before the change
    after_s: float
    steps_before: float
    steps_after: float
    lasted_s: float
    lost_share: float  # share of the time of all steady steps
    rank: int | None
    phase: str  # the phase that grew most
    phase_s: float  # its growth
    alike: bool = False  # forward and backward of all ranks grew equally, as when the machine slows down
    coincidences: tuple[Coincidence, ...] = ()
    work: str = ""  # additional work of the job since then; empty: none was seen


@dataclass(frozen=True, slots=True)
class PeriodicCall:
    """A line of the training loop outside every part of the step that takes about as much time as the stalls."""

    file: str
    line: int
    called: str  # the user's function that it calls; empty: none
    share: float  # of the rank's time
    in_model: float  # part of this share that is spent in the model
    collects: bool = False  # it steps an environment, or the loss is computed of what it returns


@dataclass(frozen=True, slots=True)
class PeriodicStall:
    """Steps that are regularly far longer than usual. At least one of the two periods is known."""

    period_steps: float | None  # None: periodic in seconds only
    period_s: float | None
    events: int
    steps: int  # in which the events were found
    usual_s: float
    stall_s: float  # time of a stall beyond the usual step
    share: float  # of the time
    rank: int | None
    phase: str
    coincides: str  # what happens at the same time; empty: nothing that was seen
    last_step: int
    call: PeriodicCall | None = None
    gap_share: float = 0.0  # of the stalls' time, in the gap
    grew: tuple[float, float] | None = (
        None  # median seconds of the first and of the last third of the stalls, if they grow clearly
    )


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """Memory after the warm-up: of one rank, of all its workers together, or copied by all workers of the job."""

    rank: int
    role: Literal["rank", "worker"]
    processes: int
    # True: pages inherited by fork that workers copied; resident memory does not show these copies
    copied: bool
    seconds: float
    steps: float  # of the rank in these seconds
    thirds_mb: tuple[float, float, float]  # median of each third of the time
    mb_per_s: float
    # upper bound of further growth: pages still to copy, or data still to keep in a first pass; None: no bound is known
    left_mb: float | None = None

    @property
    def growth(self) -> float:
        """Growth as a share of the first third's median."""
        return self.mb_per_s * self.seconds / max(self.thirds_mb[0], 1e-9)
