"""Charts of the HTML report as inline SVG: widths in percent, so that they fit any screen while text and lines keep their size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve
from rn50_advisor.advisor.model.report import PHASES, Capacity, Segment
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text, phrases

BAR_HEIGHT = 26
PLOT_HEIGHT = 132
LABEL_SHARE = 0.07  # of the width: a narrower part has no room for its percentage
LABEL_SHARE_PHONE = 0.14
CAPACITY_CUT = 5.0  # times the slowest stage: a stage ten times as fast would leave no room to see the slow ones
LONGEST_BAR_PERCENT = 94.0  # % of the width that the longest bar takes; the rest is for what sticks out of it
MARK_HEIGHT = 8
SPARK_HEIGHT = 28
STRIP_HEIGHT = 16
_FAINT = 0.25  # still to be seen
HEAT_RATIOS = (1.1, 1.25, 1.5, 2.0)  # steps this many times as long as usual get the next darker shade
PLOT_UNITS = 1000.0  # width of the plot's own coordinates, stretched to the page
_NO_DATA = Markup("")


def phase_class(name: str) -> str:
    """The CSS class that colours a phase; names we do not know are coloured as unattributed."""
    return "p-" + (name if name in PHASES else "unattributed").replace(".", "-").replace("_", "-")


def budget_bar(row: Mapping[str, float], *, names: Sequence[str], longest_s: float, title: str) -> Markup:
    """One step as a stacked bar, drawn to the scale of the longest one."""
    parts, x = [], 0.0
    whole = sum(row.values())
    for name in names:
        seconds = row.get(name, 0.0)
        if not 0 < seconds / longest_s <= 1:
            continue
        width = 100 * seconds / longest_s
        text = f"{phrases.phase(name)}: {fmt.duration(seconds)}, {fmt.share(seconds / whole)}"
        parts.append(rect(x, width, phase_class(name), text))
        if seconds / longest_s >= LABEL_SHARE:
            css = "in-bar" if seconds / longest_s >= LABEL_SHARE_PHONE else "in-bar tight"
            label = Markup('<text class="{}" x="{:.2f}%" y="17.5" text-anchor="middle">{}</text>')
            parts.append(label.format(css, x + width / 2, fmt.share(seconds / whole)))
        x += width
    return svg(BAR_HEIGHT, f"{title}: {fmt.duration(whole)} per step", parts)


def capacity_scale(capacities: Iterable[Capacity], measured: float | None) -> float:
    """Samples/s at the right edge: everything if it fits, else a few times the slowest stage."""
    rates = [c.samples_per_s for c in capacities if c.samples_per_s is not None and 0 < c.samples_per_s < math.inf]
    if not rates:
        return 1.0
    tops = [c.hi or c.samples_per_s or 0.0 for c in capacities]
    return max(min(max(tops), CAPACITY_CUT * min(rates)), measured or 0.0)


def capacity_bar(capacity: Capacity, *, scale: float, measured: float | None, slowest: bool) -> Markup:
    """One stage: what it could deliver, its interval as a whisker, the job's own rate as a line through all of them."""
    rate = capacity.samples_per_s or 0.0
    cut = rate > scale
    text = f"{phrases.stage(capacity)}: {fmt.number(rate)} samples/s"
    parts = [rect(0.0, LONGEST_BAR_PERCENT * min(rate / scale, 1.0), "c-slowest" if slowest else "c-stage", text)]
    if cut:
        parts.append(
            Markup('<text class="cut" x="{:.2f}%" y="18" text-anchor="start">»</text>').format(LONGEST_BAR_PERCENT + 1)
        )
    elif capacity.lo is not None and capacity.hi is not None:
        lo, hi = (LONGEST_BAR_PERCENT * min(max(edge, 0.0) / scale, 1.04) for edge in (capacity.lo, capacity.hi))
        parts.append(line(lo, hi, 13, 13, "whisker"))
        parts += [line(edge, edge, 8, 18, "whisker") for edge in (lo, hi)]
    if measured is not None and 0 < measured <= scale:
        x = LONGEST_BAR_PERCENT * measured / scale
        parts.append(line(x, x, 0, BAR_HEIGHT, "measured"))
    return svg(BAR_HEIGHT, text, parts)


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of the run's time, drawn at the plot's upper edge; the stronger its `share` is, the darker."""

    start_s: float
    end_s: float
    share: float
    text: str


def plot(
    points: Sequence[tuple[float, float | None]],
    segments: Sequence[Segment],
    *,
    end_s: float,
    top: float,
    title: str,
    marks: Sequence[Mark] = (),
    data: Markup = _NO_DATA,
) -> Markup:
    """A line over the run's time, broken where nothing is known, with the run's segments behind it. `points` are (seconds, value)."""
    behind = [_band(segment, end_s) for segment in segments if segment.end_s > segment.start_s]
    grid = [line(0, 100, PLOT_HEIGHT * y, PLOT_HEIGHT * y, "grid") for y in (0.0, 0.5, 1.0)]
    shapes = []
    for piece in _pieces(points):
        joined = " ".join(
            f"{PLOT_UNITS * t / end_s:.1f},{PLOT_HEIGHT * (1 - min(value / top, 1.0)):.1f}" for t, value in piece
        )
        first, last = PLOT_UNITS * piece[0][0] / end_s, PLOT_UNITS * piece[-1][0] / end_s
        shapes.append(
            Markup('<polygon class="area" points="{:.1f},{} {} {:.1f},{}"/>').format(
                first, PLOT_HEIGHT, joined, last, PLOT_HEIGHT
            )
        )
        shapes.append(Markup('<polyline class="line" points="{}"/>').format(joined))
    above = [_mark(mark, end_s) for mark in marks]
    return svg(PLOT_HEIGHT, title, [*behind, *grid, stretched(Markup("").join(shapes)), *above], "plot", data)


def _mark(mark: Mark, end_s: float, height: int = MARK_HEIGHT) -> Markup:
    shape = '<rect class="late" x="{:.2f}%" y="0" width="{:.2f}%" height="{}" opacity="{:.2f}"><title>{}</title></rect>'
    x, width = 100 * mark.start_s / end_s, 100 * (mark.end_s - mark.start_s) / end_s
    faint = _FAINT + (1 - _FAINT) * mark.share
    return Markup(shape).format(x, max(width, 0.15), height, faint, inert_text.one_line(mark.text))


def worker_chart(curve: WorkerCurve, *, top: float, title: str) -> Markup:
    """The forecast as a band over the number of workers; the measured point is a dot, the knee a line."""
    last = max(curve.points[-1].workers, 1)
    places = [(LONGEST_BAR_PERCENT * 10 * point.workers / last + 10, point) for point in curve.points]

    def y(rate: float) -> float:
        return PLOT_HEIGHT * (1 - min(rate / top, 1.0))

    upper = " ".join(f"{x:.1f},{y(point.samples_per_s[1]):.1f}" for x, point in places)
    lower = " ".join(f"{x:.1f},{y(point.samples_per_s[0]):.1f}" for x, point in reversed(places))
    middle = " ".join(f"{x:.1f},{y(sum(point.samples_per_s) / 2):.1f}" for x, point in places)
    shapes = Markup('<polygon class="area" points="{} {}"/><polyline class="line" points="{}"/>').format(
        upper, lower, middle
    )
    grid = [line(0, 100, PLOT_HEIGHT * share, PLOT_HEIGHT * share, "grid") for share in (0.0, 0.5, 1.0)]
    parts = [*grid, stretched(shapes)]
    column = LONGEST_BAR_PERCENT / last
    for x, point in places:
        text = f"{fmt.counted(point.workers, 'worker')}: {point.words} samples/s"
        parts.append(rect(x / 10 - column / 2, column, "over", text, PLOT_HEIGHT))
        if point.workers == curve.knee:
            parts.append(line(x / 10, x / 10, 0, PLOT_HEIGHT, "knee"))
        if point.workers == curve.measured:
            dot = '<circle class="dot" cx="{:.2f}%" cy="{:.1f}" r="5"><title>{}</title></circle>'
            label = f"{point.workers} workers: {point.words} samples/s, measured"
            parts.append(Markup(dot).format(x / 10, y(sum(point.samples_per_s) / 2), label))
    return svg(PLOT_HEIGHT, title, parts, "plot")


def worker_ticks(curve: WorkerCurve, most: int = 9) -> list[tuple[float, int]]:
    """(place in percent of the chart's width, workers) of evenly chosen counts, the last one among them."""
    last = max(curve.points[-1].workers, 1)
    step = max(1, math.ceil(last / (most - 1)))
    return [(LONGEST_BAR_PERCENT * n / last + 1, n) for n in range(0, last + 1, step)]


def round_top(largest: float) -> float:
    """The top of an axis: the next round number that leaves a little air above the largest value."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (1.2, 1.6, 2, 3, 4, 5, 6, 8, 10, 12) if step * power >= largest * 1.04)


def score_ring(score: int | None, title: str) -> Markup:
    """A ring that is filled to the score's share; empty without one."""
    ring = (
        '<path class="{}" pathLength="100" stroke-dasharray="{} 100" d="M48 6 a42 42 0 0 1 0 84 a42 42 0 0 1 0 -84"/>'
    )
    parts = [Markup(ring).format("ring", 100)]
    parts += [Markup(ring).format("filled", score)] if score else []
    words = "–" if score is None else str(score)
    parts.append(Markup('<text x="48" y="48" text-anchor="middle" dominant-baseline="central">{}</text>').format(words))
    head = '<svg class="score" role="img" aria-label="{}" width="96" height="96">{}</svg>'
    return Markup(head).format(inert_text.one_line(title), Markup("").join(parts))


def sparkline(
    points: Sequence[tuple[float, float | None]],
    *,
    end_s: float,
    top: float,
    title: str,
    css: str = "",
    data: Markup = _NO_DATA,
) -> Markup:
    """An area without axes over the run's time. `points` are (seconds, value); it breaks where nothing is known."""
    shapes = []
    for piece in _pieces(points):
        joined = " ".join(
            f"{PLOT_UNITS * t / end_s:.1f},{1 + (SPARK_HEIGHT - 2) * (1 - min(value / top, 1.0)):.1f}"
            for t, value in piece
        )
        first, last = PLOT_UNITS * piece[0][0] / end_s, PLOT_UNITS * piece[-1][0] / end_s
        shapes.append(
            Markup('<polygon class="{}" points="{:.1f},{} {} {:.1f},{}"/>').format(
                f"area {css}".rstrip(), first, SPARK_HEIGHT, joined, last, SPARK_HEIGHT
            )
        )
        shapes.append(Markup('<polyline class="line" points="{}"/>').format(joined))
    return svg(SPARK_HEIGHT, title, [stretched(Markup("").join(shapes), SPARK_HEIGHT)], "plot spark", data)


def hover_data(start_s: float, slice_s: float, unit: str, **curves: Sequence[float | None]) -> Markup:
    """Attributes from which the page's script shows values at the pointer: equal slices from `start_s`; unknown ones are empty."""
    head = Markup(' data-from="{:.6g}" data-slice="{:.6g}" data-unit="{}"').format(start_s, slice_s, unit)
    texts = {name: ",".join("" if v is None else f"{v:.4g}" for v in values) for name, values in curves.items()}
    return head + Markup("").join(Markup(' data-{}="{}"').format(name, text) for name, text in texts.items())


def heat(
    ratios: Sequence[float | None],
    late: Sequence[bool],
    *,
    start_s: float,
    slice_s: float,
    end_s: float,
    title: str,
    data: Markup = _NO_DATA,
) -> Markup:
    """A row of the rank x time chart: the darker, the longer the steps of a slice are than usual (ratio 1); late slices underlined."""
    x0, width = PLOT_UNITS * start_s / end_s, PLOT_UNITS * slice_s / end_s
    shade = [None if ratio is None else sum(ratio > edge for edge in HEAT_RATIOS) for ratio in ratios]
    lines = [(f"h{level}", STRIP_HEIGHT / 2, [s == level for s in shade]) for level in range(len(HEAT_RATIOS) + 1)]
    lines.append(("behind", STRIP_HEIGHT - 2, list(late)))
    shapes = []
    for css, y, flags in lines:
        path = "".join(f"M{x0 + a * width:.1f} {y:g}h{(b - a) * width:.1f}" for a, b in _stretches(flags))
        shapes += [Markup('<path class="{}" d="{}"/>').format(css, path)] if path else []
    return svg(STRIP_HEIGHT, title, [stretched(Markup("").join(shapes), STRIP_HEIGHT)], "strip heat", data)


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """[first, end) of each stretch of set flags."""
    edges = [0, *(i for i in range(1, len(flags)) if flags[i] != flags[i - 1]), len(flags)]
    return [(a, b) for a, b in itertools.pairwise(edges) if a < b and flags[a]]


def strip(marks: Sequence[Mark], *, end_s: float, title: str) -> Markup:
    """The marked stretches of the run's time in one row; the stronger a mark's share is, the darker."""
    return svg(STRIP_HEIGHT, title, [_mark(mark, end_s, STRIP_HEIGHT) for mark in marks], "strip")


def clock_ticks(end_s: float, count: int = 5) -> list[str]:
    """Labels for equal distances from the start to the end of the run."""
    return [fmt.clock(end_s * i / (count - 1)) for i in range(count)]


def _band(segment: Segment, end_s: float) -> Markup:
    label = inert_text.one_line(segment.label or phrases.segment_word(segment.kind), 60)
    kind = (
        segment.kind.replace(" ", "-")
        if segment.kind in ("warm-up", "deep window", "evaluation", "checkpoint", "change", "stall")
        else "epoch"
    )
    text = f"{label}: {fmt.clock(segment.start_s)} to {fmt.clock(segment.end_s)}"
    x, share = 100 * segment.start_s / end_s, (segment.end_s - segment.start_s) / end_s
    band = rect(x, 100 * share, f"s-{kind}", text, PLOT_HEIGHT)
    if share < LABEL_SHARE * len(label) / 5:
        return band
    return band + Markup('<text class="band" x="{:.2f}%" dx="6" y="{}">{}</text>').format(x, PLOT_HEIGHT - 8, label)


def _pieces(points: Iterable[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches in which the value is known; a lone point becomes a short dash, else nobody would see it."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for t, value in points:
        if value is not None:
            pieces[-1].append((t, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece if len(piece) > 1 else [*piece, (piece[0][0] + 0.5, piece[0][1])] for piece in pieces if piece]


def stretched(shapes: Markup, height: int = PLOT_HEIGHT) -> Markup:
    """Shapes in the plot's own coordinates, as wide as the page is."""
    return Markup('<svg viewBox="0 0 {:.0f} {}" width="100%" height="{}" preserveAspectRatio="none">{}</svg>').format(
        PLOT_UNITS, height, height, shapes
    )


def rect(x: float, width: float, css: str, text: str, height: int = BAR_HEIGHT) -> Markup:
    if not math.isfinite(x + width):
        return Markup("")
    shape = '<rect class="{}" x="{:.2f}%" y="0" width="{:.2f}%" height="{}"><title>{}</title></rect>'
    return Markup(shape).format(css, x, max(width, 0.15), height, inert_text.one_line(text))


def line(x1: float, x2: float, y1: float, y2: float, css: str) -> Markup:
    if not math.isfinite(x1 + x2):
        return Markup("")
    return Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{:.1f}" y2="{:.1f}"/>').format(css, x1, x2, y1, y2)


def svg(height: int, title: str, parts: Iterable[Markup], css: str = "bar", data: Markup = _NO_DATA) -> Markup:
    head = '<svg class="{}" role="img" aria-label="{}" width="100%" height="{}"{}>{}</svg>'
    return Markup(head).format(css, inert_text.one_line(title), height, data, Markup("").join(parts))
