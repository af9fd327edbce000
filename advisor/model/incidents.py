"""Incidents of a job: processes that died, the cause of a failure, and stalls."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # no other process sends these


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception at the place where it was first raised."""

    text: str  # type and message
    within: str  # helper process that raised it, as "DataLoader worker process 0"; empty: the rank itself
    file: str  # of the innermost line of the user's own code; empty if unknown
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Death:
    rank: int | None
    pid: int
    t_s: float  # since the job's start
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    phase: str
    step: int
    role: str = "rank"
    exception: str = ""  # full text, with the traceback of a helper
    raised: RaisedError | None = None
    first: bool = False
    follows: bool = False  # its exception shows that another rank had ended before
    loader: int | None = None  # number of the loader, for a worker that made batches
    t_error_s: float = 0.0  # uncertainty of `t_s` against deaths on other hosts, from their clocks
    # last lines of the recorded output: those marked as its own, else the whole job's
    last_lines: tuple[str, ...] = ()

    @property
    def failed_by_itself(self) -> bool:
        """True if the process itself had a reason to end: the OOM killer, a crash, or an exception of its own."""
        return self.oom_killed or self.signal in _CRASHES or bool(self.exception and not self.follows)


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of the job's failure, from its exceptions or its output."""

    kind: str  # name of a known failure, or "exception"
    title: str
    advice: str  # empty: nothing is known beyond the exception
    rank: int | None  # None: unknown, or it failed before there were ranks
    line: str  # the line of the exception or output that shows it


@dataclass(frozen=True, slots=True)
class StalledRank:
    rank: int
    phase: str
    step: int
    since_s: float  # seconds since it last moved
    file: str
    line: int
    function: str
    leaf: str
    culprit: bool
    waiting_in_collective: bool
    # Set if the rank was seen twice at the same place and did not run in between: stopped by a signal, or asleep in a line of the user's
    # code. Empty: it may be working.
    halted: Literal["", "asleep", "stopped"] = ""
    compiling: bool = False
    working: bool = False  # seen twice outside any collective, and computed on a CPU in between
    frames: tuple[str, ...] = ()  # stack of a culprit, innermost first: `function (file.py:line)`


@dataclass(frozen=True, slots=True)
class StuckCollective:
    """The collective that a job is stuck in. `present`: ranks that have begun it; `missing`: ranks that have not."""

    kind: str  # all_reduce, broadcast, barrier
    number: int  # index among its group's collectives, as each rank counts them
    group_size: int
    present: tuple[int, ...]
    missing: tuple[int, ...]
    elements: int | None = None
    differing: str = ""  # the call of each rank, if they differ
    source: str = ""  # origin of the counts


@dataclass(frozen=True, slots=True)
class Stall:
    t_s: float
    stalled_s: float
    ended: bool
    typical_step_s: float
    p99_step_s: float
    ranks: tuple[StalledRank, ...]
    collective: StuckCollective | None = None  # None: unknown, or no collective
    others_moved: bool = False  # other ranks moved: single ranks stalled, not the job
    resumed: bool = False  # steps followed the stall
    group_size: int = 0  # number of ranks that exchange with each other, as far as known; some may not be visible
