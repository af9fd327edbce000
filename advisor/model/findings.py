"""The results of rules: evidence, fixes, predicted savings, and the four possible outcomes of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.model.job_changes import JobChange
from rn50_advisor.advisor.model.measures.measure import Measure

Severity = Literal["critical", "high", "medium", "low", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low", "info")
# Facts that only a rule's check knows. They decide which findings cause its finding and which it causes; see `rules/conditions.py`.
Circumstance = Literal[
    "better than workers",
    "computing grew",
    "copies settled",
    "ended a rank",
    "exchange grew",
    "gap grew",
    "held by settings",
    "input grew",
    "others hold as long",
    "slows each call",
]
Effort = Literal["one line", "small change", "larger change", "outside the code"]
# Share by which two runs of the same job differ on a quiet machine. Of 317 measured speed-ups, 246 lay inside intervals without it and
# 292 inside intervals with it.
RUNS_DIFFER = 0.05
A_GAIN = 1.005  # a range that ends below this reads "1.00×" and predicts nothing


# How a value and its note form a sentence: "rank 1 waits 400 ms" stands alone, "of the SMs had work" continues "30 %" to a sentence, and
# "read back from swap" explains "8 MB/s", which needs the metric's title in front: "swap-in rate: 8 MB/s, read back from swap".
NoteForm = Literal["alone", "continues", "explains"]


@dataclass(frozen=True, slots=True)
class Evidence:
    metric: str
    value: float | str | None
    unit: str = ""
    threshold: float | None = None
    note: str = ""
    form: NoteForm = "alone"
    gpu: int | None = None  # the GPU that the note is about

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
        """Evidence from a value of this measure. `unit` is given only if it differs from the measure's."""
        return cls(measure.name, value, measure.unit if unit is None else unit, threshold, note, form, gpu)


@dataclass(frozen=True, slots=True)
class Where:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Fix:
    """A proposed change. `change` is text for people; `call` is the same change as data, if the advisor can apply it.

    `call` applies to the call at `where`, or to the whole job.
    """

    title: str
    change: str = ""
    where: Where | None = None
    effort: Effort = "small change"
    diff: str | None = None  # unified, against the file as the job ran it
    call: JobChange | None = None
    options: tuple[str, ...] = ()  # of the job's command line or environment with this effect: `pass --workers 6`
    typed: tuple[str, ...] = ()  # the same options as one types them: `--workers 6`, `WORKERS=6`
    gpus: tuple[int, ...] = ()  # GPUs that this fix is for, if the finding's GPUs need different fixes

    @classmethod
    def of(cls, title: str, call: JobChange, where: Where | None, effort: Effort, *, more: str = "") -> Fix:
        """A fix whose text is its call followed by `more`."""
        return cls(title, f"{call}{more}", where, effort, call=call)


@dataclass(frozen=True, slots=True)
class Saving:
    """Predicted gain. A speed-up is the old step time over the new one, below 1.0 if the job may become slower.

    A rule gives the worst and the best case. In a report these cases are the `bounds`, and the ranges contain the true gain in the share
    `confidence` of all cases, judged by the past predictions of that rule.
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
        """True if the range is too wide for a likely value."""
        low, high = self.speedup
        return high > 2.0 * low


@dataclass(frozen=True, slots=True)
class Affected:
    """The part of the job that a finding is about; empty means all of it."""

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
    seconds_per_step: float  # lost on the critical path; findings are sorted by this
    scope: Affected = Affected()
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    saving: Saving | None = None
    # Rules whose findings this one explains. A rule of another distribution may add to its own list; the engine sets the actual ones.
    explains: tuple[str, ...] = ()
    explained_by: str | None = None
    circumstances: frozenset[Circumstance] = frozenset()
    fatal: bool = False  # the job hangs or died: fix this before anything else
    # the job will die of it within minutes, or runs in the wrong place: listed before findings that only cost time
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Clear:
    """The rule ran and found nothing."""

    rule: str


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """The rule could not run: measures are missing."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Crashed:
    rule: str
    error: str


Outcome = Finding | Clear | NotMeasured | Crashed
