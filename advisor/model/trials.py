"""Fixes tried on the user's own job: the object that every output of `try` shows; `as_json` is the contract `rn50-advisor/try/1`.

```
job          {argv, samples_per_s: number|null}      the job as it is
trials[]     {rule, title, knob, predicted: {likely: number|null, lo, hi}|null, measured: ratio|null,
              outcome: faster|no_gain|undecided|refused, reason, applied: live|restart|null, numbers: same|rounding|accuracy, change,
              diff: text|null}
best         the rule of the fix with the largest gain|null
together     ratio|null      all that were faster, at once
took_s, notes[]
run          {started_unix_s}|null      the run that it is kept with
```
A ratio is {speedup, lo, hi, pairs}: the speed with the change over the speed without, its interval, and the number of comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, TypedDict, get_args

SCHEMA = "rn50-advisor/try/1"
NO_GAIN = 0.02  # an interval within this of 1.00 says that a fix brings nothing: runs of one job differ by more

Outcome = Literal["faster", "no_gain", "undecided", "refused"]
# How a change is applied: switched while the job runs, or by starting the job again with it.
Applied = Literal["live", "restart"]
# What the change does to the numbers that the job computes.
Numbers = Literal["same", "rounding", "accuracy"]


@dataclass(frozen=True, slots=True)
class Predicted:
    """Speed-ups foretold by the finding."""

    likely: float | None
    lo: float
    hi: float

    def as_json(self) -> dict[str, Any]:
        return {"likely": self.likely, "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True, slots=True)
class MeasuredSpeedup:
    """A speed-up with its interval; `pairs`: how often the job with the change was compared with the job without."""

    speedup: float
    lo: float
    hi: float
    pairs: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"speedup": self.speedup, "lo": self.lo, "hi": self.hi, "pairs": self.pairs}


@dataclass(frozen=True, slots=True)
class Trial:
    """One fix and what came of it. `change` is what one types or edits to keep it; `diff` the same for a file."""

    rule: str
    title: str
    knob: str  # `DataLoader.num_workers=2`, `OMP_NUM_THREADS=1`
    outcome: Outcome
    reason: str = ""  # why it was refused or is undecided, or what to know about the gain
    predicted: Predicted | None = None
    measured: MeasuredSpeedup | None = None
    applied: Applied | None = None
    numbers: Numbers = "same"
    change: str = ""
    diff: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "title": self.title,
            "knob": self.knob,
            "predicted": self.predicted.as_json() if self.predicted else None,
            "measured": self.measured.as_json() if self.measured else None,
            "outcome": self.outcome,
            "reason": self.reason,
            "applied": self.applied,
            "numbers": self.numbers,
            "change": self.change,
            "diff": self.diff,
        }


@dataclass(frozen=True, slots=True)
class Tried:
    """All trials of one call, in the order in which they were made."""

    trials: tuple[Trial, ...]
    argv: tuple[str, ...]
    samples_per_s: float | None = None  # of the job as it is
    together: MeasuredSpeedup | None = None  # all winners at once
    took_s: float = 0.0
    notes: tuple[str, ...] = ()  # what was held back from the job, and what could not be
    run_started_unix_s: float | None = None  # identifies the run that the trials are kept with

    @property
    def best(self) -> Trial | None:
        """The faster one with the largest speed-up."""
        faster = [trial for trial in self.trials if trial.outcome == "faster" and trial.measured]
        return max(faster, key=lambda trial: trial.measured.speedup if trial.measured else 0.0, default=None)

    def as_json(self) -> dict[str, Any]:
        best = self.best
        return {
            "schema": SCHEMA,
            "job": {"argv": list(self.argv), "samples_per_s": self.samples_per_s},
            "trials": [trial.as_json() for trial in self.trials],
            "best": best.rule if best else None,
            "together": self.together.as_json() if self.together else None,
            "took_s": self.took_s,
            "notes": list(self.notes),
            "run": None if self.run_started_unix_s is None else {"started_unix_s": self.run_started_unix_s},
        }


def from_json(document: Mapping[str, Any]) -> Tried:
    """Reads what `as_json` made. Raises ValueError on anything else."""
    if document.get("schema") != SCHEMA:
        raise ValueError(f"not a result of try: {document.get('schema')!r}")
    try:
        job = document["job"]
        return Tried(
            tuple(_trial(each) for each in document["trials"]),
            tuple(map(str, job["argv"])),
            None if job["samples_per_s"] is None else float(job["samples_per_s"]),
            _measured(document["together"]),
            float(document["took_s"]),
            tuple(map(str, document["notes"])),
            float(run["started_unix_s"]) if (run := document.get("run")) else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged result of try: {type(error).__name__}: {error}") from error


def _trial(each: Mapping[str, Any]) -> Trial:
    predicted = each["predicted"]
    return Trial(
        str(each["rule"]),
        str(each["title"]),
        str(each["knob"]),
        _one_of(Outcome, each["outcome"]),
        str(each["reason"]),
        None if predicted is None else Predicted(predicted["likely"], predicted["lo"], predicted["hi"]),
        _measured(each["measured"]),
        None if each["applied"] is None else _one_of(Applied, each["applied"]),
        _one_of(Numbers, each["numbers"]),
        str(each["change"]),
        None if each["diff"] is None else str(each["diff"]),
    )


def _measured(ratio: Mapping[str, Any] | None) -> MeasuredSpeedup | None:
    if ratio is None:
        return None
    return MeasuredSpeedup(float(ratio["speedup"]), float(ratio["lo"]), float(ratio["hi"]), int(ratio["pairs"]))


def _one_of(words: Any, given: object) -> Any:
    if given not in get_args(words):
        raise ValueError(f"a damaged result of try: {given!r}")
    return given


@dataclass(frozen=True, slots=True)
class PastTrial:
    """What is kept of a trial: how well the prediction did. Nothing of the job, its files or its machine's name."""

    rule: str
    knob: str
    outcome: Outcome
    predicted: Predicted | None
    measured: MeasuredSpeedup | None
    day: str  # `2026-11-30`
    advisor: str  # versions
    torch: str
    device: str  # `CPU`, `NVIDIA H200`

    @property
    def is_foretold(self) -> bool | None:
        """True if the measured speed-up lay inside the predicted range; None if there is nothing to compare."""
        if self.predicted is None or self.measured is None or self.outcome not in ("faster", "no_gain"):
            return None
        return self.predicted.lo <= self.measured.speedup <= self.predicted.hi


class RuleRecordDocument(TypedDict):
    """How well a rule has foretold its gains. `error`: median of measured over likely speed-up; null where none was likely."""

    rule: str
    tried: int
    faster: int
    no_gain: int
    undecided: int
    compared: int
    inside: int
    error: float | None


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """How well a rule has foretold its gains. `error`: median of measured over likely speed-up; None where none was likely."""

    rule: str
    faster: int
    no_gain: int
    undecided: int
    compared: int  # decided trials of a prediction
    inside: int  # of these, within the predicted range
    error: float | None

    @property
    def tried(self) -> int:
        return self.faster + self.no_gain + self.undecided

    def as_json(self) -> RuleRecordDocument:
        return {
            "rule": self.rule,
            "tried": self.tried,
            "faster": self.faster,
            "no_gain": self.no_gain,
            "undecided": self.undecided,
            "compared": self.compared,
            "inside": self.inside,
            "error": self.error,
        }


def rule_records(past: Iterable[PastTrial]) -> list[RuleRecord]:
    """One for each rule, in the order of their ids."""
    by_rule: dict[str, list[PastTrial]] = {}
    for trial in past:
        by_rule.setdefault(trial.rule, []).append(trial)
    return [_record(rule, by_rule[rule]) for rule in sorted(by_rule)]


def _record(rule: str, trials: list[PastTrial]) -> RuleRecord:
    outcomes = [trial.outcome for trial in trials]
    compared = [trial for trial in trials if trial.is_foretold is not None]
    errors = [
        trial.measured.speedup / trial.predicted.likely
        for trial in compared
        if trial.measured and trial.predicted and trial.predicted.likely
    ]
    return RuleRecord(
        rule,
        outcomes.count("faster"),
        outcomes.count("no_gain"),
        outcomes.count("undecided"),
        len(compared),
        sum(trial.is_foretold is True for trial in compared),
        median(errors) if errors else None,
    )
