"""Predicts the gain of a fix: a rule's worst and best case, corrected by the errors of its earlier predictions.

A rule's model gives an interval of step times: one end if all of its assumptions hold, the other if all fail. The wider it is, the less
is known, but errors grow more slowly than it does. `gain_errors.csv` keeps quantiles of the errors of each rule, in units of the spread
that goes with such an interval, from runs with and without each fix: conformal prediction with normalised scores. A rule whose fix was
never tried gets the average correction of the others.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from rn50_advisor.advisor.model.findings import RUNS_DIFFER, Saving

CONFIDENCE = 0.8
ANY_RULE = "any"
# Of the scales tried (0.03 to 0.12, and 0.2 to 1 per width) those near this gave the narrowest ranges that held 80 % of the cases left out.
_SPREAD, _PER_WIDTH = 0.08, 0.3
# A range begins at most so many times above the worst case, and ends at most so many times above the best one: far outside of these, wide
# ranges had been stretched to 67 times as fast. Of 51 unseen gains 35 lay inside, without it 33; of 622 seeded ones 512 and 511:
# it was chosen on these, among 1.1 to 2.
_FROM_BOUNDS = 1.5


@dataclass(frozen=True, slots=True)
class GainErrors:
    """Quantiles of `error` in measured gains, and how often their ranges and likely values were right on held-out scenarios."""

    low: float
    likely: float
    high: float
    scenarios: int
    measured: int  # runs with a fix
    held: int  # of these, inside the range
    near: int  # of these, within 15 % of the likely value


@cache
def gain_errors() -> Mapping[str, GainErrors]:
    """Returns the errors by rule; `ANY_RULE` is for rules without measurements."""
    text = (files(__package__) / "gain_errors.csv").read_text(encoding="utf-8")
    return {row["rule"]: _errors(row) for row in csv.DictReader(text.splitlines())}


def errors_of(rule: str) -> GainErrors:
    return gain_errors().get(rule) or gain_errors()[ANY_RULE]


def _errors(row: Mapping[str, str]) -> GainErrors:
    low, likely, high = (float(row[name]) for name in ("low", "likely", "high"))
    return GainErrors(low, likely, high, *(int(row[name]) for name in ("scenarios", "measured", "held", "near")))


def error(bounds: tuple[float, float], gain: float) -> float:
    """Returns how far a speed-up lies from the middle of a rule's two cases, in units of the spread to be expected; both are logarithms."""
    middle, spread = _scale(bounds)
    return (math.log(gain) - middle) / spread


def expected(saving: Saving, errors: GainErrors) -> Saving:
    """Adds a likely value and a range of `CONFIDENCE`; the rule's two cases become the bounds. A saving without gain keeps its range."""
    if not saving.is_gain:
        return replace(saving, likely=math.prod(saving.speedup) ** 0.5)
    bounds = saving.speedup
    middle, spread = _scale(bounds)
    likely, low, high = (math.exp(middle + spread * at) for at in (errors.likely, errors.low, errors.high))
    low, high = min(low, bounds[0] * _FROM_BOUNDS), min(high, bounds[1] * _FROM_BOUNDS)
    low, high = min(low, likely * (1.0 - RUNS_DIFFER)), max(high, likely * (1.0 + RUNS_DIFFER))
    step_s = saving.seconds_per_step[1] / (1.0 - 1.0 / bounds[1])
    return replace(
        saving,
        seconds_per_step=(step_s * (1.0 - 1.0 / low), step_s * (1.0 - 1.0 / high)),
        speedup=(low, high),
        likely=likely,
        confidence=CONFIDENCE,
        bounds=bounds,
    )


def _scale(bounds: tuple[float, float]) -> tuple[float, float]:
    worst, best = map(math.log, bounds)
    return (worst + best) / 2.0, _SPREAD + _PER_WIDTH * (best - worst) / 2.0
