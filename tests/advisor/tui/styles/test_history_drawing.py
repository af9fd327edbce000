"""Strips over time as glyphs: right without any colour, and as wide as asked."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.tui.styles.history_drawing import fitted, heat, phase_strip, sparkline

HALF = {"input_wait": (1.0, 1.0), "forward": (1.0, 1.0)}


def plain(lines) -> list[str]:
    return [content.plain for content in lines]


def test_a_strip_stacks_phases_from_the_bottom_in_their_order() -> None:
    assert plain(phase_strip(HALF, 4, 2)) == ["F   ", "I╱╱╱"]
    assert plain(phase_strip(HALF, 4, 2, letters=True)) == ["FFFF", "IIII"]


def test_a_boundary_within_a_cell_is_drawn_at_its_height() -> None:
    (top,) = phase_strip({"input_wait": (1.0,), "forward": (3.0,)}, 1, 1)
    assert top.plain == "▂"
    assert str(top.spans[0].style) == "$warning on $primary"


def test_columns_without_a_step_are_unknown_and_not_empty_phases() -> None:
    assert plain(phase_strip({"forward": (1.0, None)}, 2, 2)) == ["F┄", "F┄"]
    assert plain(phase_strip({}, 5, 2)) == ["", ""]


@pytest.mark.parametrize(("values", "drawn"), [((1.0, 1.1, 1.3, 1.6, 2.5, None), "·░▒▓█ "), ((0.9, 0.0, 2.0), "··█")])
def test_heat_differs_by_glyph(values, drawn) -> None:
    assert heat(values, len(values), 1.0, (1.1, 1.25, 1.5, 2.0)).plain == drawn


def test_a_sparkline_has_a_fixed_top_and_leaves_unknown_values_open() -> None:
    assert sparkline((0.0, 50.0, 100.0, 200.0, None), 5, 100.0).plain == "▁▄██┄"
    assert sparkline((), 5, 100.0).plain == "" and sparkline((1.0,), 1, 0.0).plain == "▁"


def test_curves_fill_the_width_and_shrink_to_it() -> None:
    assert fitted((1.0, 2.0), 4) == (1.0, 1.0, 2.0, 2.0)
    assert fitted((1.0, 3.0, 5.0, 7.0), 2) == (2.0, 6.0)
    assert fitted((1.0,), 0) == ()
