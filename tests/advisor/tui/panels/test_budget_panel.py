"""Where a step's time goes: a bar for the critical path and one a rank, on one scale, with a legend."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Budget, Report
from rn50_advisor.advisor.tui.panels.budget_panel import BudgetPanel, in_order_seconds, legend, ranks_to_show


def drawn(report: Report, width: int = 100, lines: int = 50) -> list[str]:
    panel = BudgetPanel()
    panel.terminal_lines = lines
    return [content.plain for content in panel.draw(report, width)]


def test_bars_stand_on_the_scale_of_the_longest_with_their_seconds() -> None:
    short, long = {"forward": 0.05}, {"forward": 0.1}
    critical, first, second = drawn(replace(samples.running(), budget=Budget(long, {0: short, 1: long})))[:3]
    assert critical.split()[0] == "critical" and critical.rstrip().endswith("100 ms")
    assert first.startswith("rank 0") and first.rstrip().endswith("50.0 ms") and len(first) == len(second)
    bars = [row[9:-9] for row in (first, second)]
    assert len(bars[0].rstrip()) <= len(bars[1]) / 2 and "F 100%" in bars[0]


@pytest.mark.parametrize(
    ("steps", "said"), [(0, "no step has ended yet"), (5, "not measured: no rank marked its phases")]
)
def test_without_phases_it_says_why(steps: int, said: str) -> None:
    report = samples.running()
    bare = replace(report, budget=Budget({}, {0: {}}), step_time=replace(report.step_time, steps=steps))
    assert drawn(bare) == [said]


def test_of_many_ranks_the_late_ones_are_shown_in_order_and_the_rest_counted() -> None:
    shown, left = ranks_to_show(samples.many_ranks(64, slow=41), 4)
    assert (shown, left) == ([0, 1, 41], 61)
    assert ranks_to_show(samples.running(), 2) == ([0, 1], 0)
    rows = drawn(samples.many_ranks(64, slow=41))
    assert any(row.startswith("rank 41") for row in rows) and any("ranks more: see Ranks" in row for row in rows)


def test_the_legend_names_letter_share_and_seconds_of_each_phase() -> None:
    rows = [line.plain for line in legend({"input_wait": 0.06, "forward": 0.02, "gap": 0.0}, 80)]
    assert len(rows) == 1
    assert rows[0].split() == [
        "I╱",
        "waiting",
        "for",
        "input",
        "75",
        "%",
        "60.0",
        "ms",
        "F",
        "forward",
        "25",
        "%",
        "20.0",
        "ms",
    ]
    assert legend({}, 80) == []


def test_a_brief_legend_has_shares_alone() -> None:
    (row,) = [line.plain for line in legend({"input_wait": 0.06, "forward": 0.02}, 60, brief=True)]
    assert "75 %" in row and "ms" not in row


@pytest.mark.parametrize("width", [40, 60, 80, 140, 200])
def test_no_line_is_wider_than_the_panel(width: int) -> None:
    assert max(len(row.rstrip()) for row in drawn(samples.many_ranks(), width)) <= width


def test_seconds_come_in_the_order_of_the_phases() -> None:
    assert in_order_seconds({"gap": 3.0, "own": 4.0, "forward": 2.0, "input_wait": 1.0}) == [1.0, 2.0, 3.0, 4.0]
