"""Past trials on a terminal of eighty columns."""

from __future__ import annotations

from dataclasses import replace

import trial_samples as samples
from rn50_advisor.advisor.report.styled_lines import plain
from rn50_advisor.advisor.report.trials.history_text import calibration_lines, history_lines


def test_a_trial_is_a_line_with_what_was_foretold() -> None:
    lines = plain(history_lines(samples.PAST)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1] == "  2026-11-28  DAT003  num_workers=2       1.3–1.6× ✓     1.52×  ▲ faster"
    assert lines[2].endswith("1.6–2.0× ✗     1.52×  ▲ faster") and lines[3].endswith(
        "1.00–1.08×       1.03×  ? undecided"
    )


def test_only_the_newest_are_shown_and_the_others_counted() -> None:
    text = plain(history_lines(samples.PAST * 20, most=3))
    assert text.count("2026-11-") == 3 and "and 77 older trials" in text


def test_rules_have_their_counts_and_the_whole_a_sentence() -> None:
    lines = plain(calibration_lines(samples.PAST)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].split() == ["DAT003", "2", "2", "0", "0", "1", "of", "2", "0.95"]
    assert lines[-1] == "  1 of 3 gains measured on this machine inside the predicted range"


def test_a_rule_that_mostly_fails_is_marked() -> None:
    outside = [replace(samples.PAST[1], day=f"2026-11-{day}") for day in range(10, 16)]
    marked = [
        line for line in calibration_lines([*outside, samples.PAST[3]]) if any(style == "warn" for _, style in line)
    ]
    assert len(marked) == 1 and "DAT003" in plain(marked)


def test_without_trials_it_says_how_to_make_some() -> None:
    assert "rn50-advisor try -- COMMAND" in plain(history_lines(())) and "try" in plain(calibration_lines(()))


def test_trials_without_a_decision_compare_with_nothing() -> None:
    assert "none of these trials" in plain(calibration_lines([samples.PAST[2]]))
