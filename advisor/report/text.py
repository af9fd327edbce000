"""The report as text for terminals, pipes and log files, and the short summary that ends a run."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import Report, State
from rn50_advisor.advisor.model.wording import evidence_words, rank_words, stage_words
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording.trial_words import BY_TRY
from rn50_advisor.advisor.report import (
    fact_tables,
    inert_text,
    kernel_tables,
    loader_tables,
    phrases,
    sample_tables,
    styled_lines,
    surroundings,
)
from rn50_advisor.advisor.report.styled_lines import Line, Style
from rn50_advisor.advisor.trials.candidates import can_be_tried

SUMMARY_LINES = 12
_WHY_LINES = 3
RANKS_A_TABLE = 5
GAPS_SHOWN = 30
GPUS_SHOWN = 16
PAIRS_SHOWN = 60
_STAGE_CELLS = 25
STATE_STYLE: dict[State, Style] = {"bottleneck": "warn", "healthy": "good", "inconclusive": "warn", "failed": "bad"}
SEVERITY_STYLE: dict[str, Style] = {"critical": "bad", "high": "bad", "medium": "warn"}


def render(report: Report) -> str:
    return styled_lines.plain(document(report))


def summary(report: Report, where: str = "", run: str = "") -> str:
    """At most twelve lines of a hundred columns: verdict, why, fix, gain, speed, and `where` the rest is.

    `run`: where the run lies, if the advice can be tried on this machine.
    """
    return styled_lines.plain(summary_lines(report, where, run))


def summary_lines(report: Report, where: str = "", run: str = "") -> list[Line]:
    verdict, finding = report.verdict, phrases.verdict_finding(report)
    style = STATE_STYLE[phrases.shown_state(report)]
    rule = f" ({verdict.rule})" if verdict.rule else ""
    title = phrases.from_its_folder(report, verdict.title)
    out: list[Line] = [[("rn50-advisor ", "title"), ("─" * (styled_lines.WIDTH - 13), "dim")]]
    out += styled_lines.wrapped(
        f"{phrases.verdict_word(report)}: ", f"{title}{rule}", "title", indent=0, most=2, label_style=style
    )
    out += _why(report, finding)
    if finding is not None and finding.fixes:
        fix = finding.fixes[0]
        place = inert_text.one_line(phrases.from_its_folder(report, phrases.place(fix)))
        where_to = f"{fmt.shorten_path(place, 60)}: " if fix.where else ""
        out += styled_lines.wrapped("fix     ", where_to + fix.title + phrases.option(fix), "code", indent=0, most=2)
    if finding is not None and (gain := phrases.gain(finding.saving, styled_lines.WIDTH - len("gain    "))):
        out += styled_lines.wrapped("gain    ", gain, "good", indent=0, most=1)
        if run and can_be_tried(finding):
            out += styled_lines.wrapped("try it  ", f"rn50-advisor try {run} -- …", "code", indent=0, most=1)
    if others := [
        f"{f.title} ({f.rule})" for f in phrases.root_findings(report) if f is not finding and f.severity != "info"
    ]:
        out += styled_lines.wrapped("also    ", "; ".join(others[:4]), indent=0, most=1)
    if made := phrases.checks(report):
        out += styled_lines.wrapped("coverage  ", made, indent=0, most=1)
    out += styled_lines.wrapped("speed   ", speed_line(report), indent=0, most=1)
    if where:
        out += styled_lines.wrapped("report  ", where, indent=0, most=1)
    return out[:SUMMARY_LINES]


def document(report: Report) -> list[Line]:
    """The full report."""
    parts = (
        _head,
        _verdict,
        _speed_part,
        _budget,
        _capacities,
        _workers,
        _findings,
        loader_tables.text_lines,
        kernel_tables.text_lines,
        sample_tables.text_lines,
        fact_tables.text_lines,
        _not_measured,
        _segments,
        _machine,
        _overhead,
    )
    out: list[Line] = []
    for part in parts:
        if made := part(report):
            out += [*made, []]
    return out[:-1]


def _why(report: Report, finding: Finding | None) -> list[Line]:
    """The first two pieces of evidence with a value, the second one only whole; without any, the verdict's summary or title."""
    evidence = finding.evidence if finding is not None else ()
    pieces = [evidence_words.sentence(e) for e in evidence if e.value is not None][:2]
    texts = ["; ".join(pieces), *pieces[:1]] if pieces else [report.verdict.summary or report.verdict.title]
    drawn = [styled_lines.wrapped("why     ", phrases.from_its_folder(report, text), indent=0) for text in texts]
    fitting = next((lines for lines in drawn if len(lines) <= _WHY_LINES), None)
    return fitting or styled_lines.wrapped(
        "why     ", phrases.from_its_folder(report, texts[-1]), indent=0, most=_WHY_LINES
    )


def speed_line(report: Report) -> str:
    rate, parts = report.throughput, []
    if rate.samples_per_s is not None:
        parts.append(fmt.rate(rate.samples_per_s, "samples/s"))
    if rate.steps_per_s:
        parts.append(f"{fmt.duration(1.0 / rate.steps_per_s)} per step")  # the mean, as everywhere for the step
    if energy := phrases.energy(report):
        parts.append(energy)
    steps = report.step_time.steps
    parts.append(f"{steps:,} steps" if steps else "no training step observed")
    if report.job.ranks:
        parts.append(rank_words.ranks(report))
    parts.append(phrases.ending(report.job))
    return " · ".join(parts)


def _head(report: Report) -> list[Line]:
    name = inert_text.one_line(report.job.name, 80)
    out: list[Line] = [[("rn50-advisor report", "title"), (f"  {name}" if name else "", "")]]
    out += styled_lines.wrapped("command  ", inert_text.command_line(report.job.argv, 400) or fmt.DASH, most=4)
    if moment := phrases.started(report):
        out += styled_lines.wrapped("started  ", moment)
    return out + styled_lines.wrapped("job      ", f"{rank_words.ranks(report)}, {phrases.ending(report.job)}")


def _verdict(report: Report) -> list[Line]:
    verdict = report.verdict
    rule = f" ({verdict.rule})" if verdict.rule else ""
    word = phrases.verdict_word(report)
    out = [
        styled_lines.title("verdict"),
        *styled_lines.wrapped(
            f"{word}: ", verdict.title + rule, "title", label_style=STATE_STYLE[phrases.shown_state(report)]
        ),
    ]
    out += styled_lines.wrapped("", verdict.summary) if verdict.summary else []
    return out + (styled_lines.wrapped("coverage  ", made) if (made := phrases.checks(report)) else [])


def _speed_part(report: Report) -> list[Line]:
    pairs = phrases.speed(report)
    width = max(len(label) for label, _ in pairs) + 2
    rows: list[Line] = [[("  ", ""), (label.ljust(width), "dim"), (value, "")] for label, value in pairs]
    return [styled_lines.title("speed"), *rows]


def _budget(report: Report) -> list[Line]:
    budget = report.budget
    names = phrases.phases_present(budget)
    if not any(sum(row.values()) > 0 for row in [budget.critical, *budget.per_rank.values()]):
        return []
    shown = phrases.ranks_shown(report)
    columns = [("critical path", budget.critical)] if budget.critical else []
    columns += [
        (fmt.shorten(inert_text.one_line(phrases.rank_word(report, rank), 60), 20), budget.per_rank[rank])
        for rank in shown
    ]
    out = [styled_lines.title("step time breakdown")]
    for start in range(0, len(columns), RANKS_A_TABLE):
        group = columns[start : start + RANKS_A_TABLE]
        rows = [
            [inert_text.one_line(phrases.phase(name), 30), *(_part(row, name) for _, row in group)] for name in names
        ]
        rows.append(["whole step", *(fmt.duration(sum(row.values())) for _, row in group)])
        out += [*styled_lines.table(["phase", *(title for title, _ in group)], rows), []]
    notes = ["communication of a rank includes waiting for other ranks; on the critical path it is transfer time only"]
    if len(budget.per_rank) > len(shown):
        notes.append(f"{len(budget.per_rank) - len(shown)} more ranks are in the JSON report")
    return out[:-1] + [line for note in notes for line in styled_lines.wrapped("", note, "dim")]


def _part(row: Mapping[str, float], name: str) -> str:
    seconds, whole = row.get(name), sum(row.values())
    if not seconds:
        return fmt.DASH if seconds is None else "0"
    return f"{fmt.duration(seconds)} {fmt.share(seconds / whole):>5}"


def _capacities(report: Report) -> list[Line]:
    if not report.capacities:
        return []
    marks = stage_words.stage_marks(report)
    out = [styled_lines.title(stage_words.TITLE)]
    for capacity in stage_words.rows(report):
        rate = (
            f"{fmt.number(capacity.samples_per_s)} samples/s" if capacity.samples_per_s is not None else "not measured"
        )
        span = f" ({phrases.capacity_range(capacity)})" if phrases.capacity_range(capacity) else ""
        mark = marks.get(capacity.stage)
        style: Style = "warn" if mark == "bottleneck" else "dim"
        name = inert_text.one_line(phrases.stage(capacity), 24).ljust(_STAGE_CELLS)
        bar = phrases.capacity_bar(report, capacity).ljust(phrases.BAR_CELLS + 2)
        head: Line = [("  ", ""), (name, ""), (bar, style), (f"{rate}{span}  ", "")]
        head += [(stage_words.MARK_WORDS[mark], style)] if mark else []
        out += [
            head,
            *(
                styled_lines.wrapped("", capacity.basis, "dim", indent=_STAGE_CELLS + 2, most=2)
                if capacity.basis
                else []
            ),
        ]
    return out


def _workers(report: Report) -> list[Line]:
    curve = report.worker_curve
    if curve is None:
        return []
    note = f"{curve.words}, all ranks together"
    return [
        styled_lines.title("with a different number of loader workers per rank"),
        *styled_lines.wrapped("workers: ", note),
    ]


def _findings(report: Report) -> list[Line]:
    if not report.findings:
        return [styled_lines.title("findings"), *styled_lines.wrapped("", "none")]
    out = [styled_lines.title("findings")]
    roots = phrases.root_findings(report)
    for number, root in enumerate(roots[: phrases.FINDINGS_SHOWN], 1):
        out += [*_finding(report, root, f"{number}. "), *_explained(report, root), []]
    return out[:-1] + _more(len(roots) - phrases.FINDINGS_SHOWN)


def _finding(report: Report, finding: Finding, bullet: str) -> list[Line]:
    indent = 2 + len(bullet)
    style = SEVERITY_STYLE.get(finding.severity, "")
    out = styled_lines.wrapped(
        f"{bullet}{finding.severity} {finding.rule}  ", finding.title, "title", label_style=style
    )
    about = [phrases.scope(finding.scope), phrases.cost(finding), f"confidence {fmt.share(finding.confidence)}"]
    out += styled_lines.wrapped("", " · ".join(part for part in about if part), "dim", indent=indent)
    for item in finding.evidence:
        out += styled_lines.wrapped("evidence  ", phrases.evidence(item), indent=indent, most=4)
    for fix in finding.fixes:
        where = f" at {phrases.place(fix)}" if fix.where else ""
        out += styled_lines.wrapped("fix       ", f"{fix.title}{where} ({fix.effort})", "good", indent=indent, most=4)
        out += styled_lines.code(fix.change, indent + 10) if fix.change else []
        out += styled_lines.diff(fix.diff, indent + 10) if fix.diff else []
    if gain := phrases.gain(finding.saving):
        basis = f" ({finding.saving.basis})" if finding.saving and finding.saving.basis else ""
        out += styled_lines.wrapped("gain      ", gain + basis, indent=indent, most=4)
    if saved := phrases.saved(report, finding):
        out += styled_lines.wrapped("          ", saved, indent=indent, most=2)
    if tried := phrases.by_try(report, finding):
        out += styled_lines.wrapped("          ", f"{BY_TRY}: {tried}", indent=indent, most=2)
    return out


def _explained(report: Report, root: Finding) -> list[Line]:
    out: list[Line] = []
    for finding in phrases.explained_findings(report, root):
        about = " · ".join(part for part in (phrases.scope(finding.scope), phrases.cost(finding)) if part)
        out += styled_lines.wrapped(
            "explains  ", f"{finding.rule} {finding.title}" + (f" ({about})" if about else ""), indent=5
        )
    return out


def _not_measured(report: Report) -> list[Line]:
    missing, broken = phrases.unmeasured(report), phrases.crashed(report)
    if not (missing or broken or report.gaps):
        return []
    out = [styled_lines.title("not measured")]
    for row in missing:
        out += styled_lines.wrapped(
            f"{inert_text.one_line(row.rule, 24)}  ",
            "needs " + (fmt.metric_list(row.missing) or "missing data"),
            most=2,
        )
    for row in broken:
        out += styled_lines.wrapped(
            f"{inert_text.one_line(row.rule, 24)}  ", "the rule itself failed: " + ", ".join(row.missing), "bad", most=2
        )
    for gap in report.gaps[:GAPS_SHOWN]:
        hint = f" (hint: {gap.hint})" if gap.hint else ""
        out += styled_lines.wrapped(
            f"{inert_text.one_line(fmt.metric_words(gap.metric), 40)} ({inert_text.one_line(gap.scope, 24)})  ",
            gap.reason + hint,
            most=3,
        )
    return out + _more(len(report.gaps) - GAPS_SHOWN)


def _more(hidden: int) -> list[Line]:
    return styled_lines.wrapped("", f"{hidden} more are in the JSON report", "dim") if hidden > 0 else []


def _segments(report: Report) -> list[Line]:
    if not report.segments:
        return []
    rows = [
        [
            inert_text.one_line(s.label or phrases.segment_word(s.kind), 40),
            fmt.clock(s.start_s),
            fmt.duration(s.end_s - s.start_s),
            f"{s.first_step:,}–{s.last_step:,}" if s.first_step is not None and s.last_step is not None else fmt.DASH,
        ]
        for s in report.segments[:GAPS_SHOWN]
    ]
    table = styled_lines.table(["part", "from", "for", "steps"], rows)
    return [styled_lines.title("the run"), *table, *_more(len(report.segments) - GAPS_SHOWN)]


def _machine(report: Report) -> list[Line]:
    pairs = surroundings.pairs(report)
    out: list[Line] = []
    if report.host is not None or report.gpus:
        out.append(styled_lines.title("machine, last reading"))
    for name, seen_there in surroundings.nodes(report):
        seen = ", ".join(f"{label} {value}" for label, value in seen_there)
        out += styled_lines.wrapped(f"{inert_text.one_line(name, 40)}  ", seen)
    if report.host is not None and not report.nodes:
        seen = ", ".join(f"{label} {value}" for label, value in surroundings.host(report.host))
        out += styled_lines.wrapped(f"{inert_text.one_line(report.host.name, 40)}  ", seen or "nothing measured")
    for gpu in report.gpus[:GPUS_SHOWN]:
        seen = ", ".join(f"{label} {value}" for label, value in surroundings.gpu(gpu) if value != fmt.DASH)
        out += styled_lines.wrapped(
            f"{inert_text.one_line(surroundings.gpu_word(gpu), 40)}  ", f"{gpu.name}: {seen or 'nothing measured'}"
        )
    out += _more(len(report.gpus) - GPUS_SHOWN)
    if not pairs:
        return out
    out += [[], styled_lines.title("environment")] if out else [styled_lines.title("environment")]
    for key, value in pairs[:PAIRS_SHOWN]:
        out += styled_lines.wrapped(f"{inert_text.one_line(key, 40).ljust(24)}  ", value, most=2)
    return out + _more(len(pairs) - PAIRS_SHOWN)


def _overhead(report: Report) -> list[Line]:
    pairs = phrases.overhead(report)
    return [
        styled_lines.title("advisor overhead"),
        *(line for label, value in pairs for line in styled_lines.wrapped(f"{label}: ", value)),
    ]
