"""Strips over the run's time: stacked phases, sparklines and heat, each as wide as asked; glyphs differ without colour, too."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby

from textual.content import Content

from rn50_advisor.advisor.model.history import Curve, resampled
from rn50_advisor.advisor.tui.styles.drawing import line
from rn50_advisor.advisor.tui.styles.phase_styles import MUTED, PhaseStyle, in_order, phase_style

_EIGHTHS = "▁▂▃▄▅▆▇█"
SHADES = "·░▒▓█"
SHADE_STYLES = (MUTED, "$warning", "$warning", "$error", "$error")
_UNKNOWN = "┄", MUTED
_WHOLE = 15 / 16  # a cell with less of a phase shows a part of the next one
_LETTER_EVERY = 24  # cells

Cell = tuple[str, str]  # glyph and style


def fitted(curve: Curve, width: int, weights: Sequence[float] = ()) -> Curve:
    """Exactly `width` values, so that all strips share one axis of time; a short curve is stretched."""
    if width <= 0 or not curve:
        return ()
    if len(curve) >= width:
        return resampled(curve, width, weights)
    return tuple(curve[i * len(curve) // width] for i in range(width))


def phase_strip(
    phases: Mapping[str, Curve], width: int, height: int, *, weights: Sequence[float] = (), letters: bool = False
) -> list[Content]:
    """Each column is one step of that time, stacked from the bottom in the usual order of phases, as shares of the step.

    `letters`: each cell has the letter of its largest phase, for terminals without colour.
    """
    names = [name for name, _ in in_order({name: 1.0 for name, curve in phases.items() if any(curve)})]
    columns = [fitted(phases[name], width, weights) for name in names]
    stacks = [_parts([curve[i] or 0.0 for curve in columns], height) for i in range(width if columns else 0)]
    styles = [phase_style(name) for name in names]
    lines = []
    for row in range(height - 1, -1, -1):
        cells: list[Cell] = []
        lettered: dict[str, int] = {}
        for at, stack in enumerate(stacks):
            cells.append(_stacked_cell(stack[row] if stack else [], styles, lettered, at, letters=letters))
        lines.append(_joined(cells))
    return lines


def _parts(values: Sequence[float], height: int) -> list[list[float]]:
    """For each row of a column, bottom first, the share of each phase in that cell; empty if there is no step."""
    total = sum(values)
    if total <= 0:
        return []
    rows = [[0.0] * len(values) for _ in range(height)]
    begin = 0.0
    for phase, value in enumerate(values):
        end = begin + value / total * height
        for row in range(int(begin), min(height, int(end) + 1)):
            rows[row][phase] = max(0.0, min(end, row + 1) - max(begin, row))
        begin = end
    return rows


def _stacked_cell(
    shares: Sequence[float], styles: Sequence[PhaseStyle], lettered: dict[str, int], at: int, *, letters: bool
) -> Cell:
    if not shares:
        return _UNKNOWN
    largest, second = sorted(range(len(shares)), key=lambda i: -shares[i])[:2] if len(shares) > 1 else (0, 0)
    seen = styles[largest]
    if letters:
        return seen.letter, f"auto on {seen.colour}"
    if shares[largest] >= _WHOLE or second == largest or shares[second] <= 0:
        if at - lettered.get(seen.letter, -_LETTER_EVERY) >= _LETTER_EVERY:
            lettered[seen.letter] = at
            return seen.letter, f"auto on {seen.colour}"
        return seen.fill, f"auto on {seen.colour}"
    lower, upper = sorted((largest, second))
    eighths = round(8 * shares[lower] / (shares[lower] + shares[upper]))
    return _EIGHTHS[min(max(eighths, 1), 7) - 1], f"{styles[lower].colour} on {styles[upper].colour}"


def sparkline(curve: Curve, width: int, top: float, style: str = "$primary") -> Content:
    """One column a value, from zero to `top`; a dot where nothing is known."""
    cells: list[Cell] = []
    for value in fitted(curve, width):
        if value is None:
            cells.append(_UNKNOWN)
        else:
            eighths = round(min(max(value / top, 0.0), 1.0) * 8) if top > 0 else 0
            cells.append((_EIGHTHS[max(eighths, 1) - 1], style))
    return _joined(cells)


def heat(curve: Curve, width: int, usual: float, levels: Sequence[float]) -> Content:
    """A shade a value: how many of the `levels`, in units of `usual`, it reaches; blank where nothing is known."""
    bounds = [level * usual for level in levels]
    reached = [-1 if value is None else bisect_right(bounds, value) for value in fitted(curve, width)]
    runs = [(level, len(list(run))) for level, run in groupby(reached)]
    return Content.assemble(
        *(" " * cells if level < 0 else (SHADES[level] * cells, SHADE_STYLES[level]) for level, cells in runs)
    )


def _joined(cells: Sequence[Cell]) -> Content:
    """Neighbours of one style become one span."""
    return line(
        *(("".join(glyph for glyph, _ in run), style) for style, run in groupby(cells, key=lambda cell: cell[1]))
    )
