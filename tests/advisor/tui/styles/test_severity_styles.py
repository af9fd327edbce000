"""Severities and states are shown by glyph and word, not by colour alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Report, StepTime
from rn50_advisor.advisor.tui.styles.severity_styles import OUTCOME, SEVERITY, STATE, severity_style, state_style


@pytest.mark.parametrize(
    ("report", "glyph", "word"),
    [
        (samples.bottleneck(), "▲", "BOTTLENECK"),
        (samples.healthy(), "✔", "HEALTHY"),
        (replace(samples.healthy(), step_time=StepTime(0.1, 0.1, 8, 5)), "○", "NO BOTTLENECK SO FAR"),
        (samples.hang(), "✖", "FAILED"),
        (samples.inconclusive(), "?", "INCONCLUSIVE"),
        (samples.young(), "…", "WAITING"),
        (replace(samples.young(), step_time=samples.healthy().step_time), "?", "INCONCLUSIVE"),
        (replace(samples.healthy(), verdict=replace(samples.healthy().verdict, state="newer")), "?", "INCONCLUSIVE"),  # type: ignore[arg-type]
    ],
    ids=[
        "bottleneck",
        "healthy",
        "healthy so far",
        "failed",
        "ended early",
        "waiting",
        "too few steps",
        "of a newer advisor",
    ],
)
def test_a_state_has_its_glyph_and_word(report: Report, glyph: str, word: str) -> None:
    assert state_style(report)[:2] == (glyph, word)


def test_an_unknown_severity_is_shown_as_the_least() -> None:
    assert severity_style("critical")[0] == "✖" and severity_style("of a newer advisor") == SEVERITY["info"]


@pytest.mark.parametrize("looks", [SEVERITY, STATE, OUTCOME], ids=["severity", "state", "outcome"])
def test_no_two_share_a_glyph(looks: dict[str, tuple[str, ...]]) -> None:
    glyphs = [look[0] for look in looks.values()]
    assert len(set(glyphs)) == len(glyphs)
