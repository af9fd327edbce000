"""The report as one HTML file: no network, no script that runs, readable in light, dark and on paper."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rn50_advisor import advisor
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.model.gpu.kernel_classes import deep_tables
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows
from rn50_advisor.advisor.model.input.sample_cost import sample_table
from rn50_advisor.advisor.model.report import SCHEMA, Report, TimelinePoint
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording import stage_words
from rn50_advisor.advisor.model.wording.loader_words import loader_rows
from rn50_advisor.advisor.report import DATA_LIMIT, charts, fact_tables, inert_text, phrases, surroundings

PAGE_LIMIT = 400_000  # bytes: what a mail or a ticket takes, and a phone opens at once
# Parts that may be dropped, least relevant to the verdict first; `report --format json` has them all.
EXPENDABLE = (
    "facts",
    "environment",
    "timeline",
    "ranks",
    "gaps",
    "outcomes",
    "segments",
    "worker_curve",
    "capacities",
    "findings",
    "budget",
    "job",
)
PAIRS_SHOWN = 60
ROWS_SHOWN = 60
WINDOWS_SHOWN = 8  # one a node is usual
_AXIS_LEAST, _AXIS_MOST = 1e-12, 1e18


def render(report: Report) -> str:
    """Renders the page with as many findings as fit its size limit: one with long diffs is as long as a dozen others."""
    shown = phrases.FINDINGS_SHOWN
    page = _page(report, shown)
    while len(page.encode("utf-8", "replace")) > PAGE_LIMIT and shown > 1:
        shown //= 2
        page = _page(report, shown)
    return page


def _page(report: Report, findings_shown: int) -> str:
    template = templates().get_template("report.html.j2")
    roots, paths = phrases.root_findings(report), surroundings.gpu_paths(report)
    pairs = surroundings.pairs(report, beside=("gpu_paths",) if paths else ())
    return template.render(
        report=report,
        version=advisor.__version__,
        schema=SCHEMA,
        data=Markup(inert_text.script_json(embedded(report))),
        finding=phrases.verdict_finding(report),
        roots=roots[:findings_shown],
        findings_hidden=max(0, len(roots) - findings_shown),
        budget=_budget(report),
        capacities=_capacities(report),
        workers=_workers(report),
        timeline=_timeline(report),
        loaders=loader_rows(report.facts),
        windows=deep_tables(report.facts)[:WINDOWS_SHOWN],
        reached=[*roofline_rows(report.facts), *memory_rows(report.facts)],
        samples=sample_table(report.facts),
        fact_tables=fact_tables.tables(report),
        paths=paths,
        pairs=pairs[:PAIRS_SHOWN],
        pairs_hidden=max(0, len(pairs) - PAIRS_SHOWN),
        rows_shown=ROWS_SHOWN,
    )


def embedded(report: Report) -> dict[str, Any]:
    """The report's JSON, without the parts that would make the page too large; `omitted` names them."""
    document = report.as_json()
    omitted: list[str] = []
    for part in EXPENDABLE:
        if len(inert_text.script_json(document)) <= DATA_LIMIT:
            break
        del document[part]
        omitted.append(part)
    return {**document, "omitted": omitted} if omitted else document


@functools.cache
def templates() -> Environment:
    """The template environment for reports and comparisons."""
    environment = Environment(
        loader=PackageLoader("rn50_advisor.advisor.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        fmt=fmt,
        phrases=phrases,
        stage_words=stage_words,
        surroundings=surroundings,
        command_line=inert_text.command_line,
        phase_class=charts.phase_class,
    )
    environment.filters["diff"] = _diff
    environment.filters["block"] = lambda text: Markup(escape(inert_text.block(text)))
    return environment


def _diff(text: str) -> Markup:
    kinds = {"--- ": "hunk", "+++ ": "hunk", "@": "hunk", "+": "added", "-": "removed", "": "same"}
    rows = inert_text.diff(text).split("\n")
    named = [(next(kind for start, kind in kinds.items() if row.startswith(start)), row) for row in rows]
    return Markup("\n").join(Markup('<span class="{}">{}</span>').format(kind, row) for kind, row in named)


def _printable(value: object) -> object:
    """Every string that a template prints passes here, before it is escaped."""
    return inert_text.one_line(value, 1000) if isinstance(value, str) and not isinstance(value, Markup) else value


def _budget(report: Report) -> dict[str, Any] | None:
    budget = report.budget
    shown = phrases.ranks_shown(report)
    rows = [("critical path", budget.critical)] if budget.critical else []
    rows += [(phrases.rank_word(report, rank), budget.per_rank[rank]) for rank in shown]
    longest_s = max((sum(row.values()) for _, row in rows), default=0.0)
    if not _drawable([longest_s]):
        return None
    names = phrases.phases_present(budget)
    bars = [
        (title, row, sum(row.values()), charts.budget_bar(row, names=names, longest_s=longest_s, title=title))
        for title, row in rows
    ]
    return {"names": names, "bars": bars, "hidden": len(budget.per_rank) - len(shown)}


def _capacities(report: Report) -> dict[str, Any] | None:
    if not report.capacities:
        return None
    measured, marks = report.throughput.samples_per_s, stage_words.stage_marks(report)
    scale = charts.capacity_scale(report.capacities, measured)
    rows = []
    for capacity in stage_words.rows(report)[:ROWS_SHOWN]:
        mark = marks.get(capacity.stage, "")
        known = _finite(capacity.samples_per_s) is not None
        bar = (
            charts.capacity_bar(capacity, scale=scale, measured=measured, slowest=mark == "bottleneck")
            if known
            else None
        )
        rows.append((capacity, bar, mark))
    return {
        "rows": rows,
        "marks": marks,
        "measured": measured,
        "cut": any((c.samples_per_s or 0) > scale for c in report.capacities),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _drawable(values: list[float]) -> bool:
    """A damaged file may hold what no axis can show."""
    return all(map(math.isfinite, values)) and _AXIS_LEAST < max(values) < _AXIS_MOST


def _workers(report: Report) -> dict[str, Any] | None:
    """The forecast over worker counts."""
    curve = report.worker_curve
    if curve is None or not _drawable([rate for point in curve.points for rate in point.samples_per_s]):
        return None
    top = charts.round_top(max(point.samples_per_s[1] for point in curve.points))
    svg = charts.worker_chart(curve, top=top, title="Samples a second by the number of loader workers")
    marks = [fmt.quantity(top * share, "samples/s") for share in (1.0, 0.5, 0.0)]
    return {"curve": curve, "svg": svg, "marks": marks, "ticks": charts.worker_ticks(curve)}


def _timeline(report: Report) -> dict[str, Any] | None:
    """Throughput over the run, or step time where samples could not be counted."""
    rates = [(p.t_s, _finite(p.samples_per_s)) for p in report.timeline]
    unit, points = "samples/s", rates
    if not any(value is not None for _, value in rates):
        unit, points = "s", [(p.t_s, _finite(p.step_s)) for p in report.timeline]
    known = [value for _, value in points if value is not None]
    if len(known) < 2 or not _drawable(known):
        return None
    ends = [report.job.duration_s, *(t for t, _ in points), *(s.end_s for s in report.segments[:ROWS_SHOWN])]
    end_s = max(*ends, 0.001)
    if not _drawable([end_s, *(abs(t) + _AXIS_LEAST for t, _ in points)]):
        return None
    top = charts.round_top(max(known))
    title = "Throughput over the run" if unit == "samples/s" else "Step time over the run"
    late = _late(report.timeline, end_s)
    svg = charts.plot(points, report.segments[:ROWS_SHOWN], end_s=end_s, top=top, title=title, marks=late)
    marks = [fmt.quantity(top * share, unit) for share in (1.0, 0.5, 0.0)]
    kinds: list[str] = list(dict.fromkeys(segment.kind for segment in report.segments))
    kinds += ["a rank that is waited for"] if late else []
    return {"title": title, "svg": svg, "marks": marks, "ticks": charts.clock_ticks(end_s), "kinds": kinds}


def _late(points: Sequence[TimelinePoint], end_s: float) -> list[charts.Mark]:
    """Returns a mark for each slice in which the ranks waited for one of them."""
    found = []
    for point, following in zip(points, [*(p.t_s for p in points[1:]), end_s], strict=True):
        if point.late_rank is not None and point.late_s is not None and following > point.t_s:
            text = f"{fmt.clock(point.t_s)}: the others wait {fmt.duration(point.late_s)} a step for rank {point.late_rank}"
            share = min(1.0, point.late_s / point.step_s) if point.step_s else 1.0
            found.append(charts.Mark(point.t_s, following, share, text))
    return found
