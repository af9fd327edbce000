"""Bars and columns: widths exact, shares true, unknown values drawn as unknown."""

from __future__ import annotations

import math

import pytest
from rich.cells import cell_len

from rn50_advisor.advisor.tui.styles.drawing import chart, fit, interval, meter, prose, stacked

BUDGET = {"input_wait": 0.6, "forward": 0.1, "backward": 0.25, "optimizer": 0.05}


@pytest.mark.parametrize("width", [1, 2, 5, 10, 40, 77, 200])
def test_a_stacked_bar_is_exactly_as_wide_as_asked(width):
    assert stacked(BUDGET, width).cell_length == width


def test_a_stacked_bar_marks_phases_by_letter_share_and_pattern():
    text = stacked(BUDGET, 60).plain
    assert text.startswith("I 60% ╱")
    assert text.count("╱") == 36 - len("I 60% ")
    assert "F 10%" in text
    assert text.index("F 10%") == 36
    assert text.index("B 25%") == 42
    assert text.rstrip().endswith("O")


def test_a_small_phase_keeps_a_cell_and_a_tiny_one_takes_none():
    text = stacked({"forward": 0.98, "gap": 0.015, "optimizer": 0.005}, 50).plain
    assert "G" in text
    assert "O" not in text


def test_a_shorter_step_has_a_shorter_bar_on_a_common_scale():
    bar = stacked(BUDGET, 40, scale=2.0)
    assert bar.cell_length == 40
    assert bar.plain.endswith(" " * 20)


@pytest.mark.parametrize("budget", [{}, {"forward": 0.0}])
def test_no_time_is_no_bar_but_dots(budget):
    assert stacked(budget, 12).plain == "┄" * 12


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "────"), (0.5, "━━──"), (1.0, "━━━━"), (7.0, "━━━━"), (0.375, "━╸──"), (None, "┄┄┄┄"), (math.nan, "┄┄┄┄")],
)
def test_a_meter_is_thick_up_to_its_share(share, text):
    assert meter(share, 4).plain == text


def test_an_interval_ends_at_its_value_and_is_blurred_around_it():
    bar = interval((40, 50, 70), 100, 20, "$primary").plain
    assert len(bar) == 20
    assert bar.index("┃") == 9
    assert bar.startswith("━" * 8)
    assert bar[10:14] == "┄" * 4
    assert interval((500, 510, 520), 100, 20, "$primary").plain.endswith("»")


@pytest.mark.parametrize("value", [0.0, 1e-9, 99.0, 100.0])
def test_an_interval_never_leaves_its_width(value):
    assert interval((value, value, value), 100, 15, "$primary").cell_length == 15


def test_a_chart_starts_at_zero_and_leaves_holes_where_nothing_is_known():
    (row,) = chart([0, 4, None, 8, math.nan], 10, 1)
    assert row.plain == "▁▄·█·"
    top, bottom = chart([8, 4, 0], 10, 2)
    assert top.plain == "█  "
    assert bottom.plain == "██▁"


def test_a_long_series_is_averaged_into_the_width():
    (row,) = chart([0.0, 8.0] * 50, 10, 1)
    assert len(row.plain) == 10
    assert len(set(row.plain)) == 1


def test_a_chart_of_nothing_draws_no_number():
    assert [line.plain for line in chart([None, None], 5, 1)] == ["··"]
    assert [line.plain for line in chart([], 5, 2)] == ["", ""]


@pytest.mark.parametrize("text", ["short", "a rather long text", "日本語のとても長い名前", "tab\tand\x1b[31m escape\n"])
def test_fit_gives_exactly_the_cells_asked_for_and_nothing_a_terminal_acts_on(text):
    cut = fit(text, 10)
    assert cell_len(cut) == 10
    assert cut.isprintable()
    assert fit("7", 3, right=True) == "  7"
    assert fit(text, 0) == ""


def test_prose_that_does_not_fit_ends_in_an_ellipsis():
    lines = prose("one two three four five six seven eight", 12, most=2)
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert all(len(line) <= 12 for line in lines)
    assert prose("", 10) == []
    assert prose("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert all(cell_len(line) <= 11 for line in prose("日本語のとても長い名前 and words", 11))
    assert prose("one two three", 9, indent="  ") == ["one two", "  three"]
    assert prose("one two", 12, most=2) == ["one two"]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e308, 5e-324])
def test_numbers_that_no_scale_holds_are_dots_or_bars_but_no_error(number):
    assert interval((1.0, 2.0, number), 4.0, 20, "$primary").cell_length == 20
    assert interval((1.0, 2.0, 3.0), number, 20, "$primary").cell_length in (0, 20)
    assert stacked({"forward": number, "backward": 1.0}, 20).cell_length == 20
    (row,) = chart([1.0, number, number, 2.0] * 10, 10, 1)
    assert row.cell_length == 10
