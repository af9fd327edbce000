"""What rules say: evidence, fixes, predicted savings, and the four possible outcomes of one rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")
Effort = Literal["one line", "small change", "larger change", "outside the code"]
# Two runs of one and the same job differ by so much on a quiet machine. Of 317 speed-ups that were measured, 246 lay inside intervals
# without it, and 292 inside those with it.
RUNS_DIFFER = 0.05
A_GAIN = 1.005  # a range that ends below reads "1.00×": saying so would be no prediction


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

    def of_another_run(self) -> Saving:
        """As the run with the fix may show it: two runs of one job differ, whatever was changed. Nothing becomes a gain by that."""
        low, high = self.speedup
        if high < A_GAIN:
            return self
        step_s = self.seconds_per_step[1] / (1.0 - 1.0 / high)
        low, high = max(1.0, low * (1.0 - RUNS_DIFFER)), high * (1.0 + RUNS_DIFFER)
        return replace(
            self, seconds_per_step=(step_s * (1.0 - 1.0 / low), step_s * (1.0 - 1.0 / high)), speedup=(low, high)
        )


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
    # the job will die of it within minutes, or runs where it should not: comes before whatever only costs time
    urgent: bool = False


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
