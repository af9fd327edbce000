"""Incidents of a job: processes that died, the cause of a failure, and stalls."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # nobody sends these


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception where it was raised first."""

    text: str  # type and message
    within: str  # which helper of the rank raised it: "DataLoader worker process 0"; empty: the rank itself
    file: str  # the innermost line of the user's own; empty where none is known
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
    exception: str = ""  # whole, with the traceback of a helper
    raised: RaisedError | None = None
    first: bool = False
    follows: bool = False  # by its own exception: another rank had gone before
    loader: int | None = None  # of a worker that made a batch: the number of its loader
    t_error_s: float = 0.0  # of `t_s` against deaths on other hosts: how well their clocks are known
    last_lines: tuple[
        str, ...
    ] = ()  # of the output that was kept: its own where they are marked so, else the whole job's

    @property
    def failed_by_itself(self) -> bool:
        """True if it reported a reason of its own."""
        return self.oom_killed or self.signal in _CRASHES or bool(self.exception and not self.follows)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the job failed, as its exceptions or its output tell."""

    kind: str  # of the known failures, or "exception"
    title: str
    advice: str  # empty: only what the exception itself says
    rank: int | None  # None: before there were ranks, or unknown
    line: str  # where it was read


@dataclass(frozen=True, slots=True)
class StalledRank:
    rank: int
    phase: str
    step: int
    since_s: float  # how long it has not moved
    file: str
    line: int
    function: str
    leaf: str
    culprit: bool
    waiting_in_collective: bool
    # Seen at the same place twice and not run in between: stopped by a signal, or asleep in the user's own line. Empty: it may be at work.
    halted: Literal["", "asleep", "stopped"] = ""
    compiling: bool = False
    working: bool = False  # seen twice outside of any collective, and computed on a CPU in between
    frames: tuple[str, ...] = ()  # of a culprit's stack, innermost first: `function (file.py:line)`


@dataclass(frozen=True, slots=True)
class StuckCollective:
    """The collective in which a job stands: who has begun it and who has not."""

    kind: str  # all_reduce, broadcast, barrier
    number: int  # of its group's collectives, as each rank counts them
    group_size: int
    present: tuple[int, ...]
    missing: tuple[int, ...]
    elements: int | None = None
    differing: str = ""  # what each rank calls instead, where they do not call the same
    source: str = ""  # who counted


@dataclass(frozen=True, slots=True)
class Stall:
    t_s: float
    stalled_s: float
    ended: bool
    typical_step_s: float
    p99_step_s: float
    ranks: tuple[StalledRank, ...]
    collective: StuckCollective | None = None  # None: unknown, or no collective
    others_moved: bool = False  # it was one that stood, not the job
    resumed: bool = False  # steps followed it
    group_size: int = 0  # with how many these ranks exchange, as far as is known: not all need be seen
