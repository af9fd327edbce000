"""The report as one HTML file: no network, complete without its script, readable in light, dark and on paper."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rn50_advisor import advisor
from rn50_advisor.advisor.model.efficiency import efficiency
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.model.gpu.kernel_classes import deep_tables
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows
from rn50_advisor.advisor.model.input.sample_cost import sample_table
from rn50_advisor.advisor.model.opportunities import gpus_used, split
from rn50_advisor.advisor.model.report import SCHEMA, Report
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording import stage_words, trial_words
from rn50_advisor.advisor.model.wording.loader_words import loader_rows
from rn50_advisor.advisor.report import (
    DATA_LIMIT,
    as_json,
    charts,
    fact_tables,
    inert_text,
    over_time,
    phrases,
    surroundings,
)
from rn50_advisor.rules.registry import all_rules

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
RANKS_OPEN = 16  # bars of more ranks are folded
# Findings and ranks shown, fewer from try to try until the page is small enough: a finding with long diffs is as long as a dozen others.
_SIZES = ((phrases.FINDINGS_SHOWN, 64), *((shown, RANKS_OPEN) for shown in (40, 20, 10, 5, 2, 1)))


def render(report: Report) -> str:
    """Renders the page with as many findings and ranks as fit its size limit."""
    page = ""
    for findings, ranks in _SIZES:
        page = _page(report, findings, ranks)
        if len(page.encode("utf-8", "replace")) <= PAGE_LIMIT:
            break
    return page


def _page(report: Report, findings_shown: int, ranks_shown: int) -> str:
    template = templates().get_template("report.html.j2")
    roots, paths = phrases.root_findings(report), surroundings.gpu_paths(report)
    opportunities, others = split(report, roots[:findings_shown])
    pairs = surroundings.pairs(report, beside=("gpu_paths",) if paths else ())
    return template.render(
        report=report,
        version=advisor.__version__,
        schema=SCHEMA,
        data=Markup(inert_text.script_json(embedded(report))),
        finding=phrases.verdict_finding(report),
        opportunities=opportunities,
        others=others,
        none_found=not roots,
        efficiency=efficiency(report),
        gpus_used=gpus_used(report),
        findings_hidden=max(0, len(roots) - findings_shown),
        budget=_budget(report, ranks_shown),
        capacities=_capacities(report),
        workers=_workers(report),
        timeline=over_time.timeline(report),
        loaders=loader_rows(report.facts),
        windows=deep_tables(report.facts)[:WINDOWS_SHOWN],
        reached=[*roofline_rows(report.facts), *memory_rows(report.facts)],
        samples=sample_table(report.facts),
        fact_tables=fact_tables.tables(report),
        paths=paths,
        pairs=pairs[:PAIRS_SHOWN],
        pairs_hidden=max(0, len(pairs) - PAIRS_SHOWN),
        rows_shown=ROWS_SHOWN,
        ranks_open=RANKS_OPEN + 1,  # and the critical path
        script=script(),
        script_hash=script_hash(),
        check_title=_check_titles().get,
    )


def embedded(report: Report) -> dict[str, Any]:
    """The report's JSON, without the parts that would make the page too large; `omitted` names them."""
    document = as_json(report)
    omitted: list[str] = []
    for part in EXPENDABLE:
        if len(inert_text.script_json(document)) <= DATA_LIMIT:
            break
        del document[part]
        omitted.append(part)
    return {**document, "omitted": omitted} if omitted else document


@functools.cache
def script() -> Markup:
    """The page's own script: a constant without any of the report's data."""
    return Markup((files(__package__) / "templates" / "report.js").read_text("utf-8"))


@functools.cache
def script_hash() -> str:
    """What the page's policy lets run: this script, character by character, and nothing else (CSP level 2, `script-src 'sha256-…'`)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(f"\n{script()}\n".encode()).digest()).decode()


@functools.cache
def _check_titles() -> dict[str, str]:
    return {rule.id: rule.name for rule in all_rules()}


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
        trial_words=trial_words,
        surroundings=surroundings,
        command_line=inert_text.command_line,
        phase_class=charts.phase_class,
        score_ring=charts.score_ring,
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


def _budget(report: Report, ranks_most: int) -> dict[str, Any] | None:
    """Bars as (title, seconds by phase, whole, drawn, rank): the critical path, ranks to show at once, and the rest."""
    budget = report.budget
    first = phrases.ranks_shown(report, RANKS_OPEN)
    shown = [*first, *(rank for rank in phrases.ranks_shown(report, ranks_most) if rank not in first)]
    rows: list[tuple[str, Mapping[str, float], int | None]] = []
    rows += [("critical path", budget.critical, None)] if budget.critical else []
    rows += [(phrases.rank_word(report, rank), budget.per_rank[rank], rank) for rank in shown]
    longest_s = max((sum(row.values()) for _, row, _ in rows), default=0.0)
    if not over_time.drawable([longest_s]):
        return None
    names = phrases.phases_present(budget)
    bars = [
        (title, row, sum(row.values()), charts.budget_bar(row, names=names, longest_s=longest_s, title=title), rank)
        for title, row, rank in rows
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
        known = over_time.finite(capacity.samples_per_s) is not None
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


def _workers(report: Report) -> dict[str, Any] | None:
    """The forecast over worker counts."""
    curve = report.worker_curve
    if curve is None or not over_time.drawable([rate for point in curve.points for rate in point.samples_per_s]):
        return None
    top = charts.round_top(max(point.samples_per_s[1] for point in curve.points))
    svg = charts.worker_chart(curve, top=top, title="Samples per second by the number of loader workers")
    marks = [fmt.quantity(top * share, "samples/s") for share in (1.0, 0.5, 0.0)]
    return {"curve": curve, "svg": svg, "marks": marks, "ticks": charts.worker_ticks(curve)}
