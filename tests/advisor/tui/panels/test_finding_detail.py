"""A finding in full."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
import trial_samples
from rn50_advisor.advisor.model.findings import Evidence, Finding, Fix
from rn50_advisor.advisor.tui.panels.finding_detail import finding_lines, finding_text
from tui_doubles import Reports, screen_text, settle, shown


async def test_findings_view_has_evidence_with_units_fixes_and_relations():
    async with shown(Reports(samples.running()), (100, 45)) as (app, pilot):
        await pilot.press("2")
        await settle(app, pilot)
        text = screen_text(app)
        for part in (
            "✖ critical",
            "└ ○ symptom",
            "● low",
            "ranks 0, 1",
            "confidence 95 %",
            "costs 412 ms per step",
            "saves 310–380 ms per step",
            "input wait share",
            "70 %",
            "5.0 %",
            "load in worker processes: num_workers=6 (one line)",
            "samples/train.py:142",
            "pin_memory=True",
            "→ explains COM002 Ranks wait for a straggler",
        ):
            assert part in text
        await pilot.press("n")
        await settle(app, pilot)
        assert "→ explained by DAT003" in screen_text(app)


def text_of(finding: Finding, width: int = 80) -> str:
    return "\n".join(content.plain.rstrip() for content in finding_lines(finding, samples.running(), width))


def test_what_ends_a_job_costs_no_step() -> None:
    assert "costs 412 ms per step" in text_of(samples.LOADER)
    assert "costs" not in text_of(replace(samples.LOADER, fatal=True))


def test_a_long_value_takes_the_place_of_the_threshold_and_lines_of_its_own() -> None:
    place = Evidence("rank 1 is in", "augment (data/augment.py:57) of the third worker", "", None)
    shown_rows = text_of(replace(samples.LOADER, evidence=(place,)), 50).split("\n")
    at = next(n for n, row in enumerate(shown_rows) if row.startswith("rank 1 is in"))
    assert (
        shown_rows[at].endswith("augment (data/augment.py:57) of the") and shown_rows[at + 1].strip() == "third worker"
    )


def test_code_keeps_its_indent_and_a_diff_is_cut_on_the_screen_alone() -> None:
    diff = "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a = 1\n+a = 2  # " + "x" * 200 + "\n"
    fixed = replace(samples.LOADER, fixes=(Fix("change it", "for a in b:\n    c()", diff=diff),))
    shown_text = text_of(fixed)
    assert "   │ for a in b:\n   │     c()\n" in shown_text and "x" * 200 not in shown_text
    copied = finding_text(fixed, samples.running())
    assert copied.endswith(diff) and "change it (one line)" in copied.replace("small change", "one line")


def test_bare_findings_can_be_shown() -> None:
    bare = samples.empty().findings[0]
    assert text_of(bare).split("\n")[0].split() == ["○", "INFO", "XXX000", "–"]


@pytest.mark.parametrize("width", [50, 80, 140])
def test_no_line_is_wider_than_the_pane(width: int) -> None:
    assert max(map(len, text_of(samples.LOADER, width).split("\n"))) <= width


def test_what_try_measured_of_the_fix_stands_below_the_predicted_gain() -> None:
    report = replace(samples.bottleneck(), tried=trial_samples.several())
    lines = [content.plain.rstrip() for content in finding_lines(report.findings[0], report, 80)]
    gain = next(place for place, text in enumerate(lines) if text.startswith("Gain "))
    assert lines.index("Tried 1.52× (1.49–1.56×)") > gain
    assert not any("Tried" in content.plain for content in finding_lines(report.findings[2], report, 80))
