"""A result as one HTML file in the report's dress: no network, and no script that runs but for buttons that copy."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from rn50_advisor import advisor
from rn50_advisor.advisor.model.report import Budget
from rn50_advisor.advisor.report import charts, inert_text, phrases
from rn50_advisor.advisor.report.document import Bars, Document, PhaseBars, Plot, has_code, shown
from rn50_advisor.advisor.report.html import PAGE_LIMIT, script, script_hash, templates

ROWS_MOST = 300
_TONES = {"good": "healthy", "warn": "bottleneck", "bad": "failed"}
_EDGE = 4.0  # % of the width left and right of the points


def render(document: Document) -> str:
    """Renders the page with as many rows per table as fit its size limit: runs of different jobs differ in hundreds of facts."""
    rows = ROWS_MOST
    page = _page(document, rows)
    while len(page.encode("utf-8", "replace")) > PAGE_LIMIT and rows > 1:
        rows //= 2
        page = _page(document, rows)
    return page


def _page(document: Document, rows_most: int) -> str:
    template = templates().get_template("document.html.j2")
    copies = has_code(shown(document.blocks, "html"))
    return template.render(
        document=document,
        rows_most=rows_most,
        shown=lambda blocks: shown(blocks, "html"),
        kind=lambda block: type(block).__name__,
        tones=_TONES,
        bars=_bars,
        phase_bars=_phase_bars,
        plot=_plot,
        version=advisor.__version__,
        schema=document.schema,
        script=script() if copies else "",
        script_hash=script_hash(),
        data=Markup(inert_text.script_json(document.embedded())),
    )


def _bars(bars: Bars) -> list[Markup | None]:
    """Each with its interval as a whisker."""
    best = max((bar.value or 0.0 for bar in bars.rows), default=0.0)
    drawn: list[Markup | None] = []
    for bar in bars.rows:
        if bar.value is None or best <= 0:
            drawn.append(None)
            continue
        text = f"{bar.label}: {bar.value_text} {bars.unit}"
        shape = charts.rect(
            0, charts.LONGEST_BAR_PERCENT * bar.value / best, "c-slowest" if bar.slow else "c-stage", text
        )
        lo, hi = charts.LONGEST_BAR_PERCENT * bar.lo / best, min(100.0, charts.LONGEST_BAR_PERCENT * bar.hi / best)
        drawn.append(charts.svg(charts.BAR_HEIGHT, text, [shape, charts.line(lo, hi, 13, 13, "whisker")]))
    return drawn


def _phase_bars(bars: PhaseBars) -> tuple[list[str], list[tuple[str, float, Markup]]]:
    """The phases of the legend; name, seconds and drawing of each row."""
    names = [
        name
        for name in phrases.phases_present(Budget(per_rank=dict(enumerate(phases for _, phases in bars.rows))))
        if any(phases.get(name, 0.0) > 0 for _, phases in bars.rows)
    ]
    longest_s = max(sum(phases.values()) for _, phases in bars.rows)
    drawn = [
        (label, sum(phases.values()), charts.budget_bar(phases, names=names, longest_s=longest_s, title=label))
        for label, phases in bars.rows
    ]
    return names, drawn


def _plot(plot: Plot) -> tuple[Markup, list[str]]:
    """And the labels of its height, from the top."""
    gap = (100 - 2 * _EDGE) / max(1, len(plot.values) - 1)
    height, top = charts.PLOT_HEIGHT, charts.round_top(max(plot.values))
    places = [(_EDGE + gap * i, height * (1 - min(max(v / top, 0.0), 1.0))) for i, v in enumerate(plot.values)]
    parts = [charts.line(0, 100, height * share, height * share, "grid") for share in (0.0, 0.5, 1.0)]
    joined = " ".join(f"{10 * x:.1f},{y:.1f}" for x, y in places)
    parts.append(charts.stretched(Markup('<polyline class="line" points="{}"/>').format(joined)))
    if plot.marked is not None:
        x = places[plot.marked][0]
        parts.append(charts.line(x, x, 0, height, "knee"))
    drawn = charts.svg(height, plot.title, [*parts, *_dots(places, plot.words)], "plot")
    return drawn, [plot.format_value(top * share) for share in (1.0, 0.5, 0.0)]


def _dots(places: Sequence[tuple[float, float]], words: Sequence[str]) -> list[Markup]:
    dot = '<circle class="dot" cx="{:.2f}%" cy="{:.1f}" r="4"><title>{}</title></circle>'
    return [Markup(dot).format(x, y, inert_text.one_line(word)) for (x, y), word in zip(places, words, strict=True)]
