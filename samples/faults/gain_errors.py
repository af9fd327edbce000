"""`python -m samples.faults.gain_errors`: errors of the rules' predictions in the published results. The advisor corrects by them.

Each scenario counts once, however often it was repeated. A rule's own scenarios weigh one each; those of all other rules weigh three
together, so that a rule with few scenarios is not overconfident. `held` and `near` are counted on scenarios that the correction had not
seen: each was left out in turn.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.verdict import likely_gain
from rn50_advisor.advisor.verdict.likely_gain import ANY_RULE, GainErrors, expected, position
from samples.faults.results import read_json
from samples.faults.score import Result

PUBLISHED = Path(__file__).with_name("results.json.gz")
TABLE = Path(likely_gain.__file__).with_name("gain_errors.csv")
_OTHERS = 3.0  # scenarios
# With so few scenarios per rule, ranges between the quantiles 0.1 and 0.9 held less than 80 % of the scenarios left out; these hold 84 %.
_TAIL = 0.07
_NEAR = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured speed-up, and the worst and best case that its rule predicted."""

    rule: str
    scenario: str
    bounds: tuple[float, float]
    gain: float


def measured(results: Iterable[Result]) -> list[Measured]:
    return [Measured(r.verdict, r.scenario, r.cases, r.measured) for r in results if r.cases and r.measured]


def errors(rows: Sequence[Measured]) -> dict[str, GainErrors]:
    """Returns the errors by rule, and under `ANY_RULE` those for all other rules, where whole rules were left out in turn."""
    rules = sorted({row.rule for row in rows})
    found = {rule: _scored(rows, rule, [row for row in rows if row.rule == rule], _same_scenario) for rule in rules}
    return {**found, ANY_RULE: _scored(rows, "", rows, _same_rule)}


def _same_scenario(one: Measured, other: Measured) -> bool:
    return (one.rule, one.scenario) == (other.rule, other.scenario)


def _same_rule(one: Measured, other: Measured) -> bool:
    return one.rule == other.rule


def _scored(
    rows: Sequence[Measured], rule: str, own: Sequence[Measured], is_left_out: Callable[[Measured, Measured], bool]
) -> GainErrors:
    held = near = 0
    for row in own:
        others = GainErrors(*_quantiles([r for r in rows if not is_left_out(r, row)], rule), 0, 0, 0, 0)
        saving = expected(Saving((0.0, 1.0 - 1.0 / row.bounds[1]), row.bounds, ""), others)
        held += saving.speedup[0] <= row.gain <= saving.speedup[1]
        near += saving.likely is not None and abs(math.log(row.gain / saving.likely)) <= _NEAR
    scenarios = len({row.scenario for row in own})
    return GainErrors(*_quantiles(rows, rule), scenarios, len(own), held, near)


def _quantiles(rows: Sequence[Measured], rule: str) -> tuple[float, float, float]:
    runs = Counter((row.rule, row.scenario) for row in rows)
    others = sum(name != rule for name, _ in runs)
    weighed = []
    for row in rows:
        weight = 1.0 if row.rule == rule else _OTHERS / others
        weighed.append((position(row.bounds, row.gain), weight / runs[row.rule, row.scenario]))
    values, weights = np.array(sorted(weighed)).T
    middles = (np.cumsum(weights) - weights / 2.0) / weights.sum()
    low, likely, high = np.interp((_TAIL, 0.5, 1.0 - _TAIL), middles, values)
    return float(low), float(likely), float(high)


def written(found: Mapping[str, GainErrors]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("rule", "low", "likely", "high", "scenarios", "measured", "held", "near"))
    for rule, e in found.items():
        lines.writerow(
            (rule, *(f"{q:.3f}" for q in (e.low, e.likely, e.high)), e.scenarios, e.measured, e.held, e.near)
        )
    return text.getvalue()


if __name__ == "__main__":
    TABLE.write_text(written(errors(measured(read_json(PUBLISHED)))), encoding="utf-8")
