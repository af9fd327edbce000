"""What the HTML report draws over the run's time: throughput, a sparkline for each phase, and each rank's steps and lateness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from rn50_advisor.advisor.model.history import LATE_SHARE, Curve, History, resampled
from rn50_advisor.advisor.model.report import PHASES, Report, TimelinePoint
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import charts, phrases

SEGMENTS_SHOWN = 60
RANKS_SHOWN = 64
RANKS_OPEN = 16  # rows of more ranks are folded
_CELLS, _CELLS_OF_MANY = 120, 60  # time slices of a rank's row; more than RANKS_OPEN rows have fewer
_PHASE_SHARE_MIN = 0.005  # of the step over the whole run; a smaller phase has no sparkline ...
_PHASE_PEAK_MIN = 0.05  # ... unless it takes this share of a mean step in one of the slices
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
    end_s: float
    by_phase: bool  # sparklines are of single phases, each on its own scale
    rank_rows: tuple[PictureRow, ...]  # rank x time, ranks that differ from the others first; empty for one rank
    ranks_hidden: int
    now: str  # the mean of what is drawn


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
        data=_hover(points, unit),
    )
    kinds: list[str] = list(dict.fromkeys(segment.kind for segment in report.segments))
    kinds += ["a rank that is waited for"] if late else []
    rows = _late_rows(report, late, end_s)
    history = report.history
    by_phase = _phase_rows(history, end_s) if history is not None else ()
    rank_rows = _rank_rows(report, history, end_s) if history is not None else []
    return Timeline(
        title=title,
        svg=svg,
        marks=tuple(fmt.quantity(top * share, unit) for share in (1.0, 0.5, 0.0)),
        ticks=tuple(charts.clock_ticks(end_s)),
        kinds=tuple(kinds),
        sparklines=by_phase or _sparklines(report.timeline, end_s),
        late_ranks=() if rank_rows else tuple(rows[:RANKS_SHOWN]),
        late_hidden=0 if rank_rows else max(0, len(rows) - RANKS_SHOWN),
        end_s=end_s,
        by_phase=bool(by_phase),
        rank_rows=tuple(rank_rows[:RANKS_SHOWN]),
        ranks_hidden=max(0, len(rank_rows) - RANKS_SHOWN),
        now=_mean_words(report, unit),
    )


def _mean_words(report: Report, unit: str) -> str:
    rate, step = report.throughput.samples_per_s, report.step_time.median_s
    if unit == "samples/s":
        return fmt.rate(rate, "samples/s") if rate is not None else ""
    return fmt.duration(step) if step is not None else ""


def _hover(points: Sequence[tuple[float, float | None]], unit: str) -> Markup:
    """The values for the page's script, if the points are evenly spaced."""
    gaps = [after[0] - before[0] for before, after in pairwise(points)]
    even = gaps[0] > 0 and all(math.isclose(gap, gaps[0], rel_tol=0.01) for gap in gaps)
    return charts.hover_data(points[0][0], gaps[0], unit, values=[v for _, v in points]) if even else Markup("")


def _phase_rows(history: History, end_s: float) -> tuple[PictureRow, ...]:
    """The mean step over all ranks, then its phases: seconds per step, each on its own scale from zero."""
    if not history.phases:
        return ()
    names = [name for name in (*PHASES, *(n for n in history.phases if n not in PHASES)) if name in history.phases]
    whole = tuple(
        sum(value for value in values if value is not None) if any(v is not None for v in values) else None
        for values in zip(*(history.phases[name] for name in names), strict=True)
    )
    weights = [sum(counts) for counts in zip(*history.steps.values(), strict=True)]
    step_s = _mean(whole, weights)
    if step_s is None or not step_s > 0:
        return ()
    rows = [_phase_row(history, whole, label="whole step", css="", mean_s=step_s, end_s=end_s)]
    for name in names:
        curve = history.phases[name]
        mean_s, peak_s = _mean(curve, weights) or 0.0, max((v for v in curve if v is not None), default=0.0)
        if mean_s >= _PHASE_SHARE_MIN * step_s or peak_s >= _PHASE_PEAK_MIN * step_s:
            rows.append(
                _phase_row(
                    history, curve, label=phrases.phase(name), css=charts.phase_class(name), mean_s=mean_s, end_s=end_s
                )
            )
    return tuple(row for row in rows if row is not None)


def _mean(curve: Curve, weights: Sequence[float]) -> float | None:
    return next(iter(resampled(curve, 1, weights)), None)


def _phase_row(
    history: History, curve: Curve, *, label: str, css: str, mean_s: float, end_s: float
) -> PictureRow | None:
    known = [value for value in curve if value is not None]
    if not known or not drawable(known):
        return None
    points = [(history.start_s + (i + 0.5) * history.slice_s, value) for i, value in enumerate(curve)]
    drawn = charts.sparkline(
        points,
        end_s=end_s,
        top=charts.round_top(max(known)),
        title=f"{label} over the run: {fmt.duration(mean_s)} per step on average, at most {fmt.duration(max(known))}",
        css=css,
        data=charts.hover_data(history.start_s, history.slice_s, "s", values=curve),
    )
    return PictureRow(label, drawn, f"{fmt.duration(mean_s)}, at most {fmt.duration(max(known))}")


def _rank_rows(report: Report, history: History, end_s: float) -> list[PictureRow]:
    """A row for each rank: its steps over the run beside the usual step, and where the others waited for it."""
    usual_s = history.usual_step_s
    if usual_s is None or not usual_s > 0 or len(history.step_s) < 2:
        return []
    ranks = [*history.ranks_apart, *(rank for rank in sorted(history.step_s) if rank not in history.ranks_apart)]
    cells = min(history.slices, _CELLS if len(ranks) <= RANKS_OPEN else _CELLS_OF_MANY)
    slice_s = history.slice_s * history.slices / max(cells, 1)
    rows = []
    for rank in ranks:
        step_s = resampled(history.step_s[rank], cells, history.steps[rank])
        late_s = resampled(history.late_s.get(rank, ()), cells) or (None,) * len(step_s)
        longest_s, latest_s = (max((v for v in curve if v is not None), default=None) for curve in (step_s, late_s))
        if longest_s is None or not drawable([longest_s]):
            continue
        word = phrases.rank_word(report, rank)
        late = [value is not None and value > LATE_SHARE * usual_s for value in late_s]
        said = f"{fmt.duration(latest_s)} late" if latest_s is not None and any(late) else fmt.duration(longest_s)
        drawn = charts.heat(
            [None if value is None else value / usual_s for value in step_s],
            late,
            start_s=history.start_s,
            slice_s=slice_s,
            end_s=end_s,
            title=f"{word} over the run: steps of at most {fmt.duration(longest_s)}, usually {fmt.duration(usual_s)}",
            data=charts.hover_data(history.start_s, slice_s, "s", values=step_s, late=_where(late_s, late)),
        )
        rows.append(PictureRow(word, drawn, f"up to {said}", rank))
    return rows


def _where(curve: Curve, flags: Sequence[bool]) -> Curve:
    return tuple(value if flag else None for value, flag in zip(curve, flags, strict=True))


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
            charts.sparkline(values, end_s=end_s, top=top, title=f"{name}, seconds per step over the run"),
            fmt.seconds_range((min(known[name]), max(known[name]))),
        )
        for name, values in series.items()
    )


def _late(points: Sequence[TimelinePoint], end_s: float) -> list[tuple[int, float, charts.Mark]]:
    """(rank, seconds a step that the others wait for it, mark) of each slice in which the ranks waited for one of them."""
    found = []
    for point, following in zip(points, [*(p.t_s for p in points[1:]), end_s], strict=True):
        if point.late_rank is not None and point.late_s is not None and following > point.t_s:
            text = f"{fmt.clock(point.t_s)}: the others wait {fmt.duration(point.late_s)} per step for rank {point.late_rank}"
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
        rows.append(PictureRow(word, drawn, f"up to {fmt.duration(max(s for s, _ in waits))} per step", rank))
    return rows
