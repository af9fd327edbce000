"""The report as GitHub Markdown, for pull requests, issues and job summaries: no string of the job can break a table or a page."""

from __future__ import annotations

from rn50_advisor.advisor.model.findings import Finding, Fix
from rn50_advisor.advisor.model.forecast.worker_curve import KNEE_WORDS
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording import stage_words
from rn50_advisor.advisor.model.wording.trial_words import BY_TRY
from rn50_advisor.advisor.report import (
    fact_tables,
    inert_text,
    kernel_tables,
    loader_tables,
    phrases,
    sample_tables,
    surroundings,
)

ROWS_SHOWN = 60
RANKS_SHOWN = 8  # as columns; GitHub shows about this many without scrolling
_SEVERITY_MARK = {"critical": "🔴", "high": "🔴", "medium": "🟠", "low": "🟡", "info": "⚪"}
_text, _code, _cell_code = inert_text.markdown, inert_text.markdown_code, inert_text.markdown_cell_code
_table = inert_text.markdown_table


def render(report: Report) -> str:
    parts = (
        _verdict,
        _job,
        _budget,
        _capacities,
        _workers,
        _findings,
        loader_tables.markdown_lines,
        kernel_tables.markdown_lines,
        sample_tables.markdown_lines,
        fact_tables.markdown_lines,
        _not_measured,
        _segments,
        _machine,
        _overhead,
    )
    return "\n\n".join("\n".join(made) for part in parts if (made := part(report)))


def _verdict(report: Report) -> list[str]:
    verdict, finding = report.verdict, phrases.verdict_finding(report)
    rule = f" {_code(verdict.rule)}" if verdict.rule else ""
    out = [f"# {phrases.verdict_word(report)}: {_text(verdict.title)}{rule}"]
    if verdict.summary:
        out += ["", _text(verdict.summary, 1000)]
    if made := phrases.checks(report):
        out += ["", f"**Coverage:** {made}"]
    if finding is not None and (gain := phrases.gain(finding.saving)):
        out += ["", f"**Predicted gain:** {_text(gain)}"]
    if finding is not None and finding.fixes:
        out += ["", *_fix(finding.fixes[0], "**What to change:** ")]
    return out


def _job(report: Report) -> list[str]:
    rows = [("command", _cell_code(inert_text.command_line(report.job.argv), inert_text.ARGV_LIMIT) or fmt.DASH)]
    rows += [
        (label, _text(value))
        for label, value in (("name", report.job.name), ("started", phrases.started(report)))
        if value
    ]
    rows += [
        ("job", _text(phrases.ending(report.job))),
        *((label, _text(value)) for label, value in phrases.speed(report)),
    ]
    return ["## The job", "", *_table(["what", "value"], rows)]


def _budget(report: Report) -> list[str]:
    budget = report.budget
    shown = phrases.ranks_shown(report, RANKS_SHOWN)
    columns = [("critical path", budget.critical)] if budget.critical else []
    columns += [(_text(phrases.rank_word(report, rank), 60), budget.per_rank[rank]) for rank in shown]
    if not any(sum(row.values()) > 0 for _, row in columns):
        return []
    rows = []
    for name in phrases.phases_present(budget):
        cells = [
            f"{fmt.duration(row[name])} · {fmt.share(row[name] / sum(row.values()))}" if row.get(name) else fmt.DASH
            for _, row in columns
        ]
        rows.append((_text(phrases.phase(name)), *cells))
    rows.append(("**whole step**", *(f"**{fmt.duration(sum(row.values()))}**" for _, row in columns)))
    head = ["phase", *(title for title, _ in columns)]
    out = ["## Step time breakdown", "", *_table(head, rows, right=range(1, len(head)))]
    out += [
        "",
        "Communication of a rank includes waiting for other ranks; on the critical path it is transfer time only.",
    ]
    hidden = len(budget.per_rank) - len(shown)
    return [*out, f"{hidden} more ranks are in the JSON report."] if hidden > 0 else out


def _capacities(report: Report) -> list[str]:
    if not report.capacities:
        return []
    marks = stage_words.stage_marks(report)
    rows = []
    for capacity in stage_words.rows(report)[:ROWS_SHOWN]:
        stage = _text(phrases.stage(capacity))
        rate = fmt.number(capacity.samples_per_s) if capacity.samples_per_s is not None else "not measured"
        mark = marks.get(capacity.stage)
        name = f"**{stage}**" if mark == "bottleneck" else stage
        name += f" {stage_words.MARK_WORDS[mark]}" if mark else ""
        span = phrases.capacity_range(capacity) or fmt.DASH
        rows.append((name, rate, phrases.capacity_bar(report, capacity), span, _text(capacity.basis)))
    head = ["stage", "samples/s", "", "interval", "basis"]
    return [f"## {stage_words.TITLE}", "", *_table(head, rows)]


def _workers(report: Report) -> list[str]:
    curve = report.worker_curve
    if curve is None:
        return []
    rows = []
    for point in curve.points[:ROWS_SHOWN]:
        marks = [
            word for word, n in (("◀ measured", curve.measured), (f"◁ {KNEE_WORDS}", curve.knee)) if n == point.workers
        ]
        rows.append((str(point.workers), point.words, " ".join(marks)))
    note = f"workers: {curve.words}, all ranks together."
    points = _folded("All numbers of workers", _table(["workers per rank", "samples/s", ""], rows))
    return ["## With a different number of loader workers", "", note, "", *points]


def _findings(report: Report) -> list[str]:
    out = ["## Findings", ""]
    roots = phrases.root_findings(report)
    for root in roots[: phrases.FINDINGS_SHOWN]:
        out += [*_finding(report, root), ""]
    hidden = len(roots) - phrases.FINDINGS_SHOWN
    out += [f"{hidden} more are in the JSON report.", ""] if hidden > 0 else []
    return out[:-1] if roots else [*out, "None."]


def _finding(report: Report, finding: Finding) -> list[str]:
    mark = _SEVERITY_MARK[finding.severity]
    about = [phrases.scope(finding.scope), phrases.cost(finding), f"confidence {fmt.share(finding.confidence)}"]
    out = [
        f"### {mark} {_text(finding.title)} {_code(finding.rule)}",
        "",
        f"{finding.severity} · " + _text(" · ".join(filter(None, about))),
    ]
    for fix in finding.fixes:
        out += ["", *_fix(fix, "**Fix:** ")]
    if gain := phrases.gain(finding.saving):
        basis = f" ({_text(finding.saving.basis)})" if finding.saving and finding.saving.basis else ""
        saved = f"; {_text(saved)}" if (saved := phrases.saved(report, finding)) else ""
        out += ["", f"**Predicted gain:** {_text(gain)}{basis}{saved}"]
    if tried := phrases.by_try(report, finding):
        out += ["", f"**{BY_TRY.capitalize()}:** {_text(tried)}"]
    if finding.evidence:
        out += ["", "<details><summary>Evidence</summary>", "", *_evidence(finding), "", "</details>"]
    if explained := phrases.explained_findings(report, finding):
        out += ["", "Explained by this:", ""]
        for victim in explained:
            more = _text(" · ".join(filter(None, (phrases.scope(victim.scope), phrases.cost(victim)))))
            out.append(f"- {_text(victim.title)} {_code(victim.rule)}" + (f": {more}" if more else ""))
    return out


def _evidence(finding: Finding) -> list[str]:
    rows = []
    for item in finding.evidence:
        threshold = phrases.amount(item, item.threshold) if item.threshold is not None else fmt.DASH
        row = (phrases.metric(item.metric), phrases.amount(item, item.value), threshold, phrases.note(item))
        rows.append(tuple(_text(cell) for cell in row))
    return _table(["measured", "value", "threshold", "meaning"], rows)


def _fix(fix: Fix, label: str) -> list[str]:
    where = f" at {_code(phrases.place(fix))}" if fix.where else ""
    out = [f"{label}{_text(fix.title)}{where} ({fix.effort})"]
    out += ["", inert_text.markdown_block(fix.change, "python")] if fix.change else []
    return [*out, "", inert_text.markdown_diff(fix.diff)] if fix.diff else out


def _not_measured(report: Report) -> list[str]:
    missing, broken = phrases.unmeasured(report), phrases.crashed(report)
    if not (missing or broken or report.gaps):
        return []
    out = ["## Not measured", ""]
    out += [
        f"- {_code(row.rule)} not measured: needs {_text(fmt.metric_list(row.missing)) or 'missing data'}"
        for row in missing
    ]
    out += [f"- {_code(row.rule)} failed: {_text(', '.join(row.missing))}" for row in broken]
    if report.gaps:
        rows = [
            (_text(fmt.metric_words(g.metric)), _text(g.scope), _text(g.reason), _text(g.hint) or fmt.DASH)
            for g in report.gaps[:ROWS_SHOWN]
        ]
        out += ["", *_table(["measurement", "of", "reason", "hint"], rows), *_more(len(report.gaps))]
    return out


def _more(rows: int) -> list[str]:
    return ["", f"{rows - ROWS_SHOWN} more are in the JSON report."] if rows > ROWS_SHOWN else []


def _segments(report: Report) -> list[str]:
    if not report.segments:
        return []
    rows = [
        (
            _text(part.label or phrases.segment_word(part.kind)),
            fmt.clock(part.start_s),
            fmt.duration(part.end_s - part.start_s),
        )
        for part in report.segments[:ROWS_SHOWN]
    ]
    return _folded("The run", [*_table(["part", "from", "for"], rows), *_more(len(report.segments))])


def _machine(report: Report) -> list[str]:
    rows = (
        [(f"{report.host.name}: {label}", value) for label, value in surroundings.host(report.host)]
        if report.host and not report.nodes
        else []
    )
    rows += [
        (f"{name}: {label}", value) for name, node_pairs in surroundings.nodes(report) for label, value in node_pairs
    ]
    for gpu in report.gpus:
        rows += [
            (f"{surroundings.gpu_word(gpu)} {gpu.name}: {label}", value)
            for label, value in surroundings.gpu(gpu)
            if value != fmt.DASH
        ]
    paths = surroundings.gpu_paths(report)
    rows += surroundings.pairs(report, beside=("gpu_paths",) if paths else ())
    if not rows:
        return []
    table = _table(["what", "value"], [(_text(k), _text(v)) for k, v in rows[:ROWS_SHOWN]])
    if paths is not None:
        between = _table([*map(_text, paths.head)], [tuple(map(_text, row)) for row in paths.rows])
        notes = ["", f"{_text('; '.join(paths.notes))}."] if paths.notes else []
        table = ["**Between the GPUs**", "", *between, *notes, "", *table]
    return _folded("Machine and versions", [*table, *_more(len(rows))])


def _overhead(report: Report) -> list[str]:
    costs = "; ".join(f"{label} {value}" for label, value in phrases.overhead(report))
    return [f"Overhead of the advisor: {_text(costs, 600)}."]


def _folded(title: str, content: list[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", "", *content, "", "</details>"]
