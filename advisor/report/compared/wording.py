"""Wording of `compare`, the same in every output."""

from __future__ import annotations

from typing import Literal

from rn50_advisor.advisor.model.documents.comparison import (
    WHOLE_STEP,
    Change,
    Comparison,
    Estimate,
    FindingChange,
    Pair,
    PhaseDelta,
    RunColumn,
)
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import phrases

# glyph and word always go together, as in the report
CHANGE_WORDS: dict[Change, tuple[str, str]] = {
    "improved": ("▲", "improved"),
    "regressed": ("▼", "regressed"),
    "same": ("=", "same"),
    "unknown": ("?", "not comparable"),
}
FINDING_WORDS = {"appeared": ("+", "appeared"), "gone": ("✓", "gone"), "stays": ("=", "stays")}
_REST_S_MIN = 1e-6  # less is rounding
FINDING_COLUMNS = ("", "finding", "rule", "cost before", "cost after")
PHASE_COLUMNS = ("step phase", "before", "after", "change", "interval")
RUN_COLUMNS = ("run", "ranks", "samples/s", "per rank", "efficiency", "step", "verdict")


def change_word(change: Change) -> str:
    return " ".join(CHANGE_WORDS[change])


def headline(comparison: Comparison, pair: Pair) -> str:
    """`after against before: 1.48 times as fast (1.37–1.60)`."""
    names = f"{comparison.runs[pair.other].name} against {comparison.runs[pair.base].name}"
    return f"{names}: {ratio(pair.speed)} in {pair.measure}" if pair.speed else names


def names(comparison: Comparison, pair: Pair) -> str:
    """`after against before, in samples/s`."""
    measure = f", in {pair.measure}" if pair.speed else ""
    return f"{comparison.runs[pair.other].name} against {comparison.runs[pair.base].name}{measure}"


def page_heading(pair: Pair) -> str:
    """`1.48× as fast (1.37–1.60)`: names of runs may be long and say nothing."""
    if pair.speed is None or pair.change == "unknown":
        return "Not comparable"
    return (
        f"No difference found: {ratio(pair.speed)}"
        if pair.change == "same"
        else ratio(pair.speed).replace("×", "× as fast")
    )


def phase_seconds(pair: Pair, of: Literal["base_s", "other_s"]) -> dict[str, float]:
    """Seconds of each phase of a step in one of the two runs; what the phases left out take together is unattributed."""
    seconds = {delta.phase: float(getattr(delta, of)) for delta in pair.phases}
    whole = seconds.pop(WHOLE_STEP, 0.0)
    rest = whole - sum(seconds.values())
    unattributed = seconds.get("unattributed", 0.0)
    return {**seconds, "unattributed": max(0.0, unattributed + rest)} if rest > _REST_S_MIN or unattributed else seconds


def ratio(estimate: Estimate | None) -> str:
    """`1.48× (1.37–1.60)`."""
    if estimate is None:
        return fmt.DASH
    return f"{fmt.ratio(estimate.value)}× ({fmt.ratio(estimate.lo)}–{fmt.ratio(estimate.hi)})"


def share(estimate: Estimate | None) -> str:
    """`87 % (84–90)`."""
    if estimate is None:
        return fmt.DASH
    return f"{100 * estimate.value:.0f} % ({100 * estimate.lo:.0f}–{100 * estimate.hi:.0f})"


def run_row(run: RunColumn) -> list[str]:
    """Returns the cells of a run's row, in the order of RUN_COLUMNS."""
    verdict = " ".join(part for part in (phrases.STATE_WORDS[run.verdict][0], run.rule or run.verdict) if part)
    return [
        run.name,
        f"{run.ranks:,}",
        fmt.number(run.samples_per_s),
        fmt.number(run.samples_per_s_per_rank),
        share(run.efficiency),
        fmt.duration(run.step_s),
        verdict,
    ]


def signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "") + fmt.duration(seconds).replace("-", "−")


def phase_row(delta: PhaseDelta) -> list[str]:
    """Phase, before, after, difference, interval; a difference that may be none is marked as such."""
    between = f"{signed(delta.delta_s.lo)} … {signed(delta.delta_s.hi)}"
    sure = delta.delta_s.lo > 0 or delta.delta_s.hi < 0
    return [
        "whole step" if delta.phase == WHOLE_STEP else phrases.phase(delta.phase),
        fmt.duration(delta.base_s),
        fmt.duration(delta.other_s),
        signed(delta.delta_s.value) if sure else f"({signed(delta.delta_s.value)})",
        between,
    ]


def finding(change: FindingChange) -> str:
    costs = [fmt.duration(s) for s in (change.base_s, change.other_s) if s]
    cost = f", {' → '.join(costs)} per step" if costs else ""
    return f"{' '.join(FINDING_WORDS[change.state])}: {change.title} ({change.rule}){cost}"


def finding_row(change: FindingChange) -> list[str]:
    """Returns the cells of a finding's row, in the order of FINDING_COLUMNS; costs are seconds per step."""
    costs = [fmt.duration(s) if s else fmt.DASH for s in (change.base_s, change.other_s)]
    return [" ".join(FINDING_WORDS[change.state]), change.title, change.rule, *costs]


def gate(comparison: Comparison) -> str:
    """The result of `--max-regression`; empty if it was not requested."""
    asked = comparison.gate
    if asked is None:
        return ""
    limit = fmt.percent(100 * asked.max_regression)
    failed = ", ".join(comparison.runs[place].name for place in asked.failed)
    if failed:
        return f"slower by more than {limit}: {failed}"
    unjudged = ", ".join(comparison.runs[place].name for place in asked.unjudged)
    return f"could not be compared: {unjudged}" if unjudged else f"no run is significantly slower by more than {limit}"
