"""Changes during training: of speed, once or periodically, and of the memory of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Coincidence:
    """A host metric before and after a speed change: means over both intervals."""

    metric: str
    scope: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """From `step` on the steps took longer. `rank` None: on all ranks; `until_s` None: to the end."""

    step: int
    t_s: float  # since the job's start
    until_s: float | None
    before_s: float  # typical step of the stretch before
    after_s: float
    steps_before: float
    steps_after: float
    lasted_s: float
    lost_share: float  # of the time of all steady steps
    rank: int | None
    phase: str  # that grew most
    phase_s: float  # by so much
    alike: bool = False  # forward and backward of all ranks grew alike, as when the machine slows down
    coincidences: tuple[Coincidence, ...] = ()
    work: str = ""  # what the job has more to do since then; empty: nothing that was seen


@dataclass(frozen=True, slots=True)
class PeriodicCall:
    """A line of the training loop that belongs to no part of the step, and takes about as much of the time as the stalls."""

    file: str
    line: int
    called: str  # the function of the user's, empty where it calls none
    share: float  # of the time
    in_model: float  # of this share


@dataclass(frozen=True, slots=True)
class PeriodicStall:
    """Steps that are far longer than the usual one, again and again. One of the periods is known at least."""

    period_steps: float | None  # None: regular in seconds only
    period_s: float | None
    events: int
    steps: int  # among so many
    usual_s: float
    stall_s: float  # what a stall takes beyond the usual step
    share: float  # of the time
    rank: int | None
    phase: str
    coincides: str  # empty: with nothing that was seen
    last_step: int
    call: PeriodicCall | None = None


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """Memory of one rank, of all its workers together, or what all workers of the job copied, over the run after the warm-up."""

    rank: int
    role: Literal["rank", "worker"]
    processes: int
    # True: pages that workers copied from what they inherited by fork; their resident memory does not show them
    copied: bool
    seconds: float
    steps: float  # of the rank in this time
    thirds_mb: tuple[float, float, float]  # median of each third of the time
    mb_per_s: float
    # what can still be copied, or be kept of a first pass over the data; None: nothing bounds the growth
    left_mb: float | None = None

    @property
    def growth(self) -> float:
        """Share by which it grew."""
        return self.mb_per_s * self.seconds / max(self.thirds_mb[0], 1e-9)
