"""Fixes tried on the user's own job: what was predicted, what was measured, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
class Measured:
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
    measured: Measured | None = None
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
    together: Measured | None = None  # all winners at once
    took_s: float = 0.0
    notes: tuple[str, ...] = ()  # what was held back from the job, and what could not be

    @property
    def best(self) -> Trial | None:
        """The faster one with the largest speed-up."""
        faster = [trial for trial in self.trials if trial.outcome == "faster" and trial.measured]
        return max(faster, key=lambda trial: trial.measured.speedup if trial.measured else 0.0, default=None)

    def as_json(self) -> Mapping[str, Any]:
        best = self.best
        return {
            "schema": SCHEMA,
            "job": {"argv": list(self.argv), "samples_per_s": self.samples_per_s},
            "trials": [trial.as_json() for trial in self.trials],
            "best": best.rule if best else None,
            "together": self.together.as_json() if self.together else None,
            "took_s": self.took_s,
            "notes": list(self.notes),
        }
