"""What rules say: evidence, fixes, predicted savings, and the four possible outcomes of one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")
Effort = Literal["one line", "small change", "larger change", "outside the code"]


@dataclass(frozen=True, slots=True)
class Evidence:
    metric: str
    value: float | str | None
    unit: str = ""
    threshold: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Fix:
    """`change` written as a call with `...` (`DataLoader(..., num_workers=6)`) is made a diff of, where the call at `where` allows it."""

    title: str
    change: str = ""
    where: Where | None = None
    effort: Effort = "small change"
    diff: str | None = None  # unified, against the file as the job ran it


@dataclass(frozen=True, slots=True)
class Saving:
    """Predicted gain as ranges; `speedup` is old step time over new."""

    seconds_per_step: tuple[float, float]
    speedup: tuple[float, float]
    basis: str


@dataclass(frozen=True, slots=True)
class Affected:
    """Which part of the job a finding speaks of; empty means all of it."""

    ranks: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    since_step: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    title: str
    severity: Severity
    confidence: float
    seconds_per_step: float  # lost on the critical path; findings are ordered by it
    scope: Affected = Affected()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    saving: Saving | None = None
    # from a rule: what this finding explains beyond the rule's own list; from the engine: all that it did explain
    explains: tuple[str, ...] = ()
    explained_by: str | None = None
    # the inverse, from a rule that says when or how often but not why: rules whose findings are its cause where their ranks overlap
    causes: tuple[str, ...] = ()
    fatal: bool = False  # the job hangs or died: nothing else matters until that is mended
    urgent: bool = False  # the job will die of it within minutes: comes before whatever only costs time


@dataclass(frozen=True, slots=True)
class Clear:
    """The rule looked and found nothing."""

    rule: str


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """The rule could not look."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Crashed:
    rule: str
    error: str


Outcome = Finding | Clear | NotMeasured | Crashed
