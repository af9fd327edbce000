"""Plots of a benchmark as inline SVG: bars of cells, images/s over the batch, efficiency over the devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from rn50_advisor.advisor.model.documents.benchmark import Cell, Scaling, Sweep
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.benched import wording
from rn50_advisor.advisor.report.charts import BAR_HEIGHT, PLOT_HEIGHT, ROOM, round_top

_EDGE = 4.0  # % of the width left and right of the points


def rate_bar(cell: Cell, best: float) -> Markup | None:
    """A cell's images/s to the scale of the fastest one, with its interval as a whisker. None where nothing was measured."""
    measured = cell.images_per_s
    if measured is None or best <= 0:
        return None
    text = f"{cell.setting.words}: {wording.rate(measured.value)} images/s"
    css = "c-slowest" if cell.verdict is not None and cell.verdict.state == "bottleneck" else "c-stage"
    bar = Markup('<rect class="{}" x="0" y="0" width="{:.2f}%" height="{}"><title>{}</title></rect>').format(
        css, ROOM * measured.value / best, BAR_HEIGHT, inert_text.one_line(text)
    )
    lo, hi = ROOM * measured.lo / best, min(100.0, ROOM * measured.hi / best)
    return _svg(BAR_HEIGHT, text, [bar, _line(lo, hi, 13, 13, "whisker")], "bar")


def sweep_plot(sweep: Sweep) -> tuple[Markup, list[str], list[str]]:
    """(plot, labels of its height, labels of its width); the knee is a dashed line."""
    top = round_top(max(sweep.images_per_s))
    title = f"Images/s by batch, {wording.sweep_title(sweep)}"
    words = [f"batch {b}: {wording.rate(r)} images/s" for b, r in zip(sweep.batches, sweep.images_per_s, strict=True)]
    marked = sweep.batches.index(sweep.knee) if sweep.knee in sweep.batches else None
    plot = _points([rate / top for rate in sweep.images_per_s], words, title=title, marked=marked)
    return plot, [wording.rate(top * share) for share in (1.0, 0.5, 0.0)], [str(batch) for batch in sweep.batches]


def scaling_plot(line: Scaling) -> tuple[Markup, list[str], list[str]]:
    title = f"Efficiency by devices, {wording.scaling_title(line)}"
    values = [estimate.value for estimate in line.efficiency]
    top = round_top(max(values))
    words = [f"{d} devices: {fmt.share(v)}" for d, v in zip(line.devices, values, strict=True)]
    plot = _points([value / top for value in values], words, title=title)
    return plot, [fmt.share(top * share) for share in (1.0, 0.5, 0.0)], [str(devices) for devices in line.devices]


def _points(heights: Sequence[float], words: Sequence[str], *, title: str, marked: int | None = None) -> Markup:
    """Points at equal distances, `heights` as shares of the plot; a line joins them."""
    gap = (100 - 2 * _EDGE) / max(1, len(heights) - 1)
    places = [(_EDGE + gap * i, PLOT_HEIGHT * (1 - min(max(h, 0.0), 1.0))) for i, h in enumerate(heights)]
    parts = [_line(0, 100, PLOT_HEIGHT * share, PLOT_HEIGHT * share, "grid") for share in (0.0, 0.5, 1.0)]
    joined = " ".join(f"{10 * x:.1f},{y:.1f}" for x, y in places)
    stretched = '<svg viewBox="0 0 1000 {}" width="100%" height="{}" preserveAspectRatio="none"><polyline class="line" points="{}"/></svg>'
    parts.append(Markup(stretched).format(PLOT_HEIGHT, PLOT_HEIGHT, joined))
    if marked is not None:
        parts.append(_line(places[marked][0], places[marked][0], 0, PLOT_HEIGHT, "knee"))
    dot = '<circle class="dot" cx="{:.2f}%" cy="{:.1f}" r="4"><title>{}</title></circle>'
    parts += [Markup(dot).format(x, y, inert_text.one_line(word)) for (x, y), word in zip(places, words, strict=True)]
    return _svg(PLOT_HEIGHT, title, parts, "plot")


def _line(x1: float, x2: float, y1: float, y2: float, css: str) -> Markup:
    return Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{:.1f}" y2="{:.1f}"/>').format(css, x1, x2, y1, y2)


def _svg(height: int, title: str, parts: Iterable[Markup], css: str) -> Markup:
    head = '<svg class="{}" role="img" aria-label="{}" width="100%" height="{}">{}</svg>'
    return Markup(head).format(css, inert_text.one_line(title), height, Markup("").join(parts))
