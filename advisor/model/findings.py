"""The results of rules: evidence, fixes, predicted savings, and the four possible outcomes of one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.model.job_changes import JobChange
from rn50_advisor.advisor.model.measures.measure import Measure

Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")
# What only a rule's check can tell, and what decides on causes of its finding, or on what it is the cause of: `rules/conditions.py`.
Circumstance = Literal[
    "better than workers",
    "ended a rank",
    "exchange grew",
    "gap grew",
    "held by settings",
    "input grew",
    "others hold as long",
]
Effort = Literal["one line", "small change", "larger change", "outside the code"]
# Two runs of one and the same job differ by so much on a quiet machine. Of 317 speed-ups that were measured, 246 lay inside intervals
# without it, and 292 inside those with it.
RUNS_DIFFER = 0.05
A_GAIN = 1.005  # a range that ends below reads "1.00×": saying so would be no prediction


# How a sentence is made of a value and its note: "rank 1 waits 400 ms" stands alone, "of one rank in a step" continues "8 samples", and
# "read back from swap" explains "8 MB/s", behind a colon.
NoteForm = Literal["alone", "continues", "explains"]


@dataclass(frozen=True, slots=True)
class Evidence:
    metric: str
    value: float | str | None
    unit: str = ""
    threshold: float | None = None
    note: str = ""
    form: NoteForm = "alone"
    gpu: int | None = None  # that the note speaks of

    @classmethod
    def of(
        cls,
        measure: Measure,
        value: float | str | None,
        threshold: float | None = None,
        note: str = "",
        *,
        unit: str | None = None,
        form: NoteForm = "alone",
        gpu: int | None = None,
    ) -> Evidence:
        """A value of this measure; `unit` where it is shown in another than the measure's own."""
        return cls(measure.name, value, measure.unit if unit is None else unit, threshold, note, form, gpu)


@dataclass(frozen=True, slots=True)
class Where:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Fix:
    """`change` is for people, `call` is what it asks for where that can be done for them: in the call at `where`, or in the whole job."""

    title: str
    change: str = ""
    where: Where | None = None
    effort: Effort = "small change"
    diff: str | None = None  # unified, against the file as the job ran it
    call: JobChange | None = None
    options: tuple[str, ...] = ()  # of the job's own command line or environment that do it: `pass --workers 6`
    gpus: tuple[int, ...] = ()  # that it is for, where the finding's GPUs need different ones

    @classmethod
    def of(cls, title: str, call: JobChange, where: Where | None, effort: Effort, *, more: str = "") -> Fix:
        """Shown as its call; `more`: what is said behind that."""
        return cls(title, f"{call}{more}", where, effort, call=call)


@dataclass(frozen=True, slots=True)
class Saving:
    """Predicted gain; speed-ups are old step time over new, below 1.0 where the job may become slower.

    A rule gives the worst and the best case. In a report both ranges hold what comes in `confidence` of all cases, as predictions of that
    rule have fared, and the two cases are its `bounds`.
    """

    seconds_per_step: tuple[float, float]
    speedup: tuple[float, float]
    basis: str
    likely: float | None = None  # speed-up; None in reports of older versions
    confidence: float | None = None
    bounds: tuple[float, float] | None = None  # speed-ups

    @property
    def is_gain(self) -> bool:
        return max(self.speedup) >= A_GAIN

    @property
    def is_vague(self) -> bool:
        """True if the range is too wide to say how much comes."""
        low, high = self.speedup
        return high > 2.0 * low


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
    # from a rule of another distribution: what this finding explains beyond the rule's own list; from the engine: all that it did explain
    explains: tuple[str, ...] = ()
    explained_by: str | None = None
    circumstances: frozenset[Circumstance] = frozenset()
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
