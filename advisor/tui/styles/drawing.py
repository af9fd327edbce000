"""Bars, charts and columns as pure functions from numbers to lines; colours are theme variables, shapes differ without them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from rn50_advisor.advisor.model.visible_text import on_one_line
from rn50_advisor.advisor.tui.styles.phase_styles import MUTED, in_order, phase_style

Part: TypeAlias = "str | tuple[str, str] | Content"
harmless = on_one_line
_BLOCKS = "▁▂▃▄▅▆▇█"


def line(*parts: Part) -> Content:
    """Joins the parts into one line. Names that a job chose can neither break it nor send control codes to the terminal."""
    safe: list[Part] = []
    for part in parts:
        if isinstance(part, tuple):
            safe.append((harmless(part[0]), part[1]))
        else:
            safe.append(harmless(part) if isinstance(part, str) else part)
    return Content.assemble(*safe)


def same(one: Content, other: Content) -> bool:
    """True if both look alike on the screen."""
    return one.plain == other.plain and one.spans == other.spans


def muted(text: str) -> tuple[str, str]:
    return text, MUTED


def fit(text: str, width: int, right: bool = False) -> str:
    """Exactly `width` cells, cut with an ellipsis or padded; what a terminal would act on becomes harmless."""
    if width <= 0:
        return ""
    text = harmless(text)
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1).rstrip() + "…"
    pad = " " * (width - cell_len(text))
    return pad + text if right else text + pad


def unmarked(text: str) -> str:
    """Escapes text for titles and notices, which would read `[bold]` in a name as a style."""
    return harmless(text).replace("[", r"\[")


def labelled(rows: Sequence[tuple[str, str]], width: int) -> list[Content]:
    """Label and text of each row, as many lines as the text needs."""
    label = min(max((len(name) for name, _ in rows), default=8), max(width // 3, 8))
    lines = []
    for name, value in rows:
        first, *more = prose(value, width - label - 2) or ["–"]
        lines.append(line(muted(fit(name, label)), "  ", first))
        lines += [Content(" " * (label + 2) + text) for text in more]
    return lines


def prose(text: str, width: int, most: int = 0, indent: str = "") -> list[str]:
    """Wrapped words, counted in cells; more than `most` lines end in an ellipsis."""
    width = max(width, 8)
    lines: list[str] = []
    rest = " ".join(harmless(text).split())
    while rest:
        head = indent if lines else ""
        line_text, rest = _break(rest, width - cell_len(head))
        lines.append(head + line_text)
    if most and len(lines) > most:
        last = fit(lines[most - 1], width - 1).rstrip().rstrip("…")
        lines = [*lines[: most - 1], f"{last}…"]
    return lines


def _break(text: str, width: int) -> tuple[str, str]:
    """Splits text after as many words as fit into `width` cells, or within a first word that is too long. Returns (line, rest)."""
    if cell_len(text) <= width:
        return text, ""
    taken = ""
    for word in text.split(" "):
        longer = f"{taken} {word}" if taken else word
        if cell_len(longer) > width:
            break
        taken = longer
    if not taken:
        taken = set_cell_size(text, max(width, 2)).rstrip()
        return taken, text[len(taken) :].lstrip()
    return taken, text[len(taken) + 1 :]


def meter(share: float | None, width: int, colour: str = "$primary") -> Content:
    """A thick line on a thin one; dots where nothing was measured."""
    if share is None or not math.isfinite(share):
        return Content.styled("┄" * max(width, 0), MUTED)
    halves = round(min(max(share, 0.0), 1.0) * width * 2)
    full, half = divmod(halves, 2)
    return line(("━" * full + "╸" * half, colour), ("─" * (width - full - half), MUTED))


def interval(bounds: tuple[float, float, float], scale: float, width: int, colour: str) -> Content:
    """A bar up to `value` whose end is blurred over the interval; `»` where it leaves the scale."""
    if width <= 0 or scale <= 0:
        return Content("")
    if not all(map(math.isfinite, (*bounds, scale))):
        return Content.styled("┄" * width, MUTED)
    _, value, _ = bounds
    cells = [round(min(max(x / scale, 0.0), 1.0) * width) for x in bounds]
    start, end, reach = sorted(cells)
    end = max(end, 1)
    start = min(start, end - 1)
    bar = line(("━" * start + "╾" * (end - 1 - start) + "┃", colour), ("┄" * (reach - end), colour))
    if value > scale:
        return line(("━" * (width - 1), colour), ("»", f"bold {colour}"))
    return line(bar, ("─" * (width - max(reach, end)), MUTED))


def stacked(budget: Mapping[str, float], width: int, scale: float | None = None) -> Content:
    """A stacked bar of phases. Each part begins with its letter and, if there is room, its share."""
    phases = in_order(dict(budget))
    total = sum(seconds for _, seconds in phases)
    if width <= 0 or total <= 0 or not math.isfinite(total):
        return Content.styled("┄" * max(width, 0), MUTED)
    drawn = width if not scale else min(max(round(total / scale * width), 1), width)
    parts: list[Part] = []
    for (phase, seconds), cells in zip(phases, _apportion([s for _, s in phases], drawn), strict=True):
        if cells:
            parts.append((_segment(phase, seconds / total, cells), f"auto on {phase_style(phase).colour}"))
    return line(*parts, " " * (width - drawn))


def _segment(phase: str, share: float, cells: int) -> str:
    seen = phase_style(phase)
    label = f"{seen.letter} {share * 100:.0f}%"
    text = f"{label} " if len(label) < cells else label if len(label) == cells else seen.letter
    return text + seen.fill * (cells - len(text))


def _apportion(values: Sequence[float], cells: int) -> list[int]:
    """Whole cells that sum to `cells`; what is at least half a cell is seen as long as there is room."""
    total = sum(values)
    exact = [value / total * cells for value in values]
    given = [max(int(x), 1 if x >= 0.5 else 0) for x in exact]
    while sum(given) > cells:
        given[max(range(len(given)), key=lambda i: given[i] - exact[i])] -= 1
    while sum(given) < cells:
        given[max(range(len(given)), key=lambda i: exact[i] - given[i])] += 1
    return given


def chart(values: Sequence[float | None], width: int, height: int) -> list[Content]:
    """Columns from zero to the largest value, `height` lines high; a blank column where nothing is known."""
    columns = _resample(values, width)
    top = max((v for v in columns if v is not None), default=0.0)
    lines = []
    for row in range(height - 1, -1, -1):
        cells = [_cell(v, top, row, height) for v in columns]
        lines.append(Content.styled("".join(cells), "$primary"))
    return lines


def _cell(value: float | None, top: float, row: int, height: int) -> str:
    if value is None:
        return "·" if row == 0 else " "
    eighths = round(value / top * height * 8) - row * 8 if top > 0 else 0
    if row == 0:
        eighths = max(eighths, 1)
    return " " if eighths <= 0 else _BLOCKS[min(eighths, 8) - 1]


def _resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """Returns at most `width` columns, each the mean of its known values. Short series keep their resolution."""
    known = [v if v is not None and math.isfinite(v) and v >= 0 else None for v in values]
    if width <= 0 or len(known) <= width:
        return known[: max(width, 0)]
    columns: list[float | None] = []
    for i in range(width):
        part = [v for v in known[i * len(known) // width : (i + 1) * len(known) // width] if v is not None]
        mean = sum(part) / len(part) if part else math.inf
        columns.append(mean if math.isfinite(mean) else None)
    return columns
