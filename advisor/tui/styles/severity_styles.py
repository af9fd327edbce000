"""Severities and states as a glyph, a word and a theme colour: never colour alone."""

from __future__ import annotations

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.check_words import is_preliminary

SEVERITY = {
    "critical": ("✖", "$error", "$text-error"),
    "high": ("▲", "$warning", "$text-warning"),
    "medium": ("◆", "$warning", "$text-warning"),
    "low": ("●", "$primary", "$text-primary"),
    "info": ("○", "$foreground", "$foreground"),
}
STATE = {
    "bottleneck": ("▲", "BOTTLENECK", "$warning"),
    "healthy": ("✔", "HEALTHY", "$success"),
    "inconclusive": ("?", "INCONCLUSIVE", "$primary"),
    "failed": ("✖", "FAILED", "$error"),
    "preliminary": ("○", "NO BOTTLENECK SO FAR", "$primary"),
    "waiting": ("…", "WAITING", "$primary"),
}
OUTCOME = {
    "fired": ("▲", "$text-warning"),
    "clear": ("✔", "$text-success"),
    "not_measured": ("–", "$foreground 62%"),
    "crashed": ("✖", "$text-error"),
}


def severity_style(severity: str) -> tuple[str, str, str]:
    """Glyph, background, foreground."""
    return SEVERITY.get(severity, SEVERITY["info"])


def state_style(report: Report) -> tuple[str, str, str]:
    """Glyph, word, background; a run without a step yet waits, and few steps without a finding are no healthy job yet."""
    state: str = report.verdict.state
    if state == "inconclusive" and report.step_time.steps == 0 and report.job.running:
        state = "waiting"
    if is_preliminary(report):
        state = "preliminary"
    return STATE.get(state, STATE["inconclusive"])
