"""Judges growth of host or GPU memory: its duration, and the severity by the time until memory is used up."""

from __future__ import annotations

from rn50_advisor.advisor.model.findings import Severity
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.rule import Thresholds

# Seconds until memory ends, from the catalogue: ten minutes are too few to react, twelve hours pass in a night.
_SEVERITIES: tuple[tuple[float, Severity], ...] = ((600.0, "critical"), (3600.0, "high"), (43200.0, "medium"))


def rises(thirds_mb: tuple[float, float, float], growth: float, t: Thresholds) -> bool:
    """True if memory grows by enough, with at least the share `lasting` of the growth in each half."""
    first, second, third = thirds_mb
    lasting = t["lasting"] * (third - first)
    return third > first and growth >= t["growth"] and min(second - first, third - second) >= lasting


def growth_severity(lasts_s: float) -> Severity:
    return next((name for most_s, name in _SEVERITIES if lasts_s < most_s), "low")


def growth_title(what: str, lasts_s: float) -> str:
    if growth_severity(lasts_s) == "critical":
        return f"{what} grows and runs out in {duration(lasts_s)}"
    return f"{what} grows steadily"
