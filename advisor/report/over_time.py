"""What the HTML report draws over the run's time: throughput, quantities of a step as sparklines, and the ranks that others waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rn50_advisor.advisor.model.report import Report, TimelinePoint
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import charts, phrases

SEGMENTS_SHOWN = 60
RANKS_SHOWN = 64
AXIS_LEAST, AXIS_MOST = 1e-12, 1e18


@dataclass(frozen=True, slots=True)
class PictureRow:
    """A line of a table with a picture: a sparkline, or the strip of one rank."""

    label: str
    drawn: Markup
    value: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    title: str
    svg: Markup
    marks: tuple[str, ...]
    ticks: tuple[str, ...]
    kinds: tuple[str, ...]
    sparklines: tuple[PictureRow, ...]
    late_ranks: tuple[PictureRow, ...]  # the one that the others waited for longest first
    late_hidden: int


def drawable(values: Sequence[float]) -> bool:
    """False for what no axis can show; a damaged file may hold it."""
    return all(map(math.isfinite, values)) and AXIS_LEAST < max(values) < AXIS_MOST


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def timeline(report: Report) -> Timeline | None:
    """Throughput over the run, or step time where samples could not be counted; None if neither can be drawn."""
    rates = [(p.t_s, finite(p.samples_per_s)) for p in report.timeline]
    unit, points = "samples/s", rates
    if not any(value is not None for _, value in rates):
        unit, points = "s", [(p.t_s, finite(p.step_s)) for p in report.timeline]
    known = [value for _, value in points if value is not None]
    if len(known) < 2 or not drawable(known):
        return None
    ends = [report.job.duration_s, *(t for t, _ in points), *(s.end_s for s in report.segments[:SEGMENTS_SHOWN])]
    end_s = max(*ends, 0.001)
    if not drawable([end_s, *(abs(t) + AXIS_LEAST for t, _ in points)]):
        return None
    top = charts.round_top(max(known))
    title = "Throughput over the run" if unit == "samples/s" else "Step time over the run"
    late = _late(report.timeline, end_s)
    svg = charts.plot(
        points,
        report.segments[:SEGMENTS_SHOWN],
        end_s=end_s,
        top=top,
        title=title,
        marks=[mark for _, _, mark in late],
    )
    kinds: list[str] = list(dict.fromkeys(segment.kind for segment in report.segments))
    kinds += ["a rank that is waited for"] if late else []
    rows = _late_rows(report, late, end_s)
    return Timeline(
        title=title,
        svg=svg,
        marks=tuple(fmt.quantity(top * share, unit) for share in (1.0, 0.5, 0.0)),
        ticks=tuple(charts.clock_ticks(end_s)),
        kinds=tuple(kinds),
        sparklines=_sparklines(report.timeline, end_s),
        late_ranks=tuple(rows[:RANKS_SHOWN]),
        late_hidden=max(0, len(rows) - RANKS_SHOWN),
    )


def _sparklines(points: Sequence[TimelinePoint], end_s: float) -> tuple[PictureRow, ...]:
    """Step time and its parts, as far as the timeline has them, in seconds per step and on one scale."""
    series: dict[str, list[tuple[float, float | None]]] = {"whole step": [], phrases.phase("input_wait"): []}
    rest = "all other phases"
    series[rest] = []
    for point in points:
        step_s, share = finite(point.step_s), finite(point.input_wait_share)
        wait_s = step_s * share if step_s is not None and share is not None else None
        left_s = step_s - wait_s if step_s is not None and wait_s is not None else None
        for name, value in zip(series, (step_s, wait_s, left_s), strict=True):
            series[name].append((point.t_s, value))
    known = {name: [v for _, v in values if v is not None] for name, values in series.items()}
    if not known[rest] or not drawable(known["whole step"]):
        return ()
    top = charts.round_top(max(known["whole step"]))
    return tuple(
        PictureRow(
            name,
            charts.sparkline(values, end_s=end_s, top=top, title=f"{name}, seconds a step over the run"),
            fmt.seconds_range((min(known[name]), max(known[name]))),
        )
        for name, values in series.items()
    )


def _late(points: Sequence[TimelinePoint], end_s: float) -> list[tuple[int, float, charts.Mark]]:
    """(rank, seconds a step that the others wait for it, mark) of each slice in which the ranks waited for one of them."""
    found = []
    for point, following in zip(points, [*(p.t_s for p in points[1:]), end_s], strict=True):
        if point.late_rank is not None and point.late_s is not None and following > point.t_s:
            text = f"{fmt.clock(point.t_s)}: the others wait {fmt.duration(point.late_s)} a step for rank {point.late_rank}"
            share = min(1.0, point.late_s / point.step_s) if point.step_s else 1.0
            found.append((point.late_rank, point.late_s, charts.Mark(point.t_s, following, share, text)))
    return found


def _late_rows(report: Report, late: Sequence[tuple[int, float, charts.Mark]], end_s: float) -> list[PictureRow]:
    by_rank: dict[int, list[tuple[float, charts.Mark]]] = {}
    for rank, wait_s, mark in late:
        by_rank.setdefault(rank, []).append((wait_s, mark))
    rows = []
    for rank, waits in sorted(by_rank.items(), key=lambda item: -sum(s for s, _ in item[1])):
        word = phrases.rank_word(report, rank)
        marked = [mark for _, mark in waits]
        drawn = charts.strip(marked, end_s=end_s, title=f"when the others waited for {word}")
        rows.append(PictureRow(word, drawn, f"up to {fmt.duration(max(s for s, _ in waits))} a step", rank))
    return rows
