"""The report on one page of a terminal: verdict, speed, the account of the step, and what to change."""

from __future__ import annotations

from rn50_advisor.advisor.model.efficiency import efficiency
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.opportunities import split
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording import fact_rows
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording.trial_words import BY_TRY
from rn50_advisor.advisor.report import inert_text, phrases, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line, Style
from rn50_advisor.advisor.report.text import SEVERITY_STYLE, STATE_STYLE, speed_line

WIDTH = 80
LINES = 40
PHASES_SHOWN = 8
_CODE_LINES_SHOWN = 3
_BAR_CELLS = 24
_NAME_CELLS = 25
MORE = "report --full: evidence, limits, machine; report --open: charts"


def render(report: Report) -> str:
    return styled_lines.plain(document(report))


def document(report: Report, more: str = MORE) -> list[Line]:
    """At most `LINES` lines of `WIDTH` columns; a fix that does not fit whole is left out and counted, the first one is cut."""
    out: list[Line] = [*_head(report), [], *_verdict(report), [], *_speed(report), []]
    if account := _account(report):
        out += [*account, []]
    end = _wrapped("more     ", more, "dim", most=2)
    return [*out, *_fixes(report, LINES - len(out) - len(end) - 1), [], *end]


def _wrapped(label: str, text: str, style: Style = "", *, indent: int = 2, most: int = 0) -> list[Line]:
    return styled_lines.wrapped(label, text, style, indent=indent, most=most, width=WIDTH)


def _head(report: Report) -> list[Line]:
    name = inert_text.one_line(report.job.name, 50)
    out: list[Line] = [[("rn50-advisor report", "title"), (f"  {name}" if name else "", "")]]
    out += _wrapped("command  ", inert_text.command_line(report.job.argv, 400) or fmt.DASH, most=2)
    return out


def _verdict(report: Report) -> list[Line]:
    verdict = report.verdict
    rule = f" ({verdict.rule})" if verdict.rule else ""
    style = STATE_STYLE[phrases.shown_state(report)]
    label = f"{phrases.verdict_word(report)}: "
    out = [styled_lines.title("verdict")]
    out += styled_lines.wrapped(label, verdict.title + rule, "title", most=2, label_style=style, width=WIDTH)
    out += _wrapped("", verdict.summary, most=4) if verdict.summary else []
    if coverage := phrases.checks(report):
        out += _wrapped("coverage    ", coverage, most=1)
    score = efficiency(report)
    words = f"{phrases.efficiency(score)}: {phrases.efficiency_basis(score)}"
    return out + _wrapped("efficiency  ", words if score.score is not None else phrases.efficiency_basis(score), most=2)


def _speed(report: Report) -> list[Line]:
    out = [styled_lines.title("speed"), *_wrapped("", speed_line(report), most=2)]
    return [*out, *_wrapped("time lost   ", lost, most=1)] if (lost := phrases.lost(report)) else out


def _account(report: Report) -> list[Line]:
    """The phases of the critical path with bars; the smallest of many phases are added up."""
    row = {name: seconds for name, seconds in report.budget.critical.items() if seconds > 0}
    whole = sum(row.values())
    if not 0 < whole < float("inf"):
        return []
    names = [name for name in phrases.phases_present(report.budget) if name in row]
    largest = sorted(names, key=lambda name: -row[name])[: PHASES_SHOWN - (len(names) > PHASES_SHOWN)]
    parts = [(phrases.phase(name), row[name]) for name in names if name in largest]
    rest = [row[name] for name in names if name not in largest]
    parts += [(f"{len(rest)} smaller phases", sum(rest))] if rest else []
    head, length = styled_lines.title("step time breakdown"), f"  {fmt.duration(whole)} on the critical path"
    out: list[Line] = [[*head, (length, "dim")]]
    for name, seconds in parts:
        bar = "█" * round(_BAR_CELLS * seconds / whole) or "▏"
        numbers = f"{fmt.duration(seconds):>9} {fmt.share(seconds / whole):>7}"
        label = inert_text.one_line(name, _NAME_CELLS - 1).ljust(_NAME_CELLS)
        out.append([("  ", ""), (label, ""), (numbers, ""), ("  ", ""), (bar, "dim")])
    return out


def _fixes(report: Report, room: int) -> list[Line]:
    opportunities, others = split(report, phrases.root_findings(report))
    first = phrases.verdict_finding(report)
    fixed = [f for f in [*(one.finding for one in opportunities), *others] if f.fixes]
    fixed.sort(
        key=lambda finding: not (finding is first and finding.fatal)
    )  # what ended the job precedes what slows it
    out = [styled_lines.title("fixes")]
    if not fixed:
        out += _wrapped("", "no finding has a fix" if report.findings else "no findings")
        return [*out, *_longest_lines(report)]
    hidden = 0
    for number, finding in enumerate(fixed, 1):
        lines = _fix(report, finding, f"{number}. ")
        if hidden or (len(out) + len(lines) > room - 1 and number > 1):
            hidden += 1
        else:
            out += lines[: room - 1]
    return out + (_wrapped("", f"more findings with a fix: {hidden}", "dim") if hidden else [])


def _longest_lines(report: Report) -> list[Line]:
    """The lines of the job's code that take most of the step: where to look where no rule says what to change."""
    rows = fact_rows.rows(report.facts, "lines")[:_CODE_LINES_SHOWN]
    if not rows:
        return []
    out: list[Line] = [[], styled_lines.title("lines of the job's code that take most of the step")]
    for label, text in rows:
        out += _wrapped(f"{inert_text.one_line(label, _NAME_CELLS)}  ", inert_text.one_line(text, 200), most=2)
    return out


def _fix(report: Report, finding: Finding, bullet: str) -> list[Line]:
    fix, indent = finding.fixes[0], 2 + len(bullet)
    style: Style = SEVERITY_STYLE.get(finding.severity, "")
    out = styled_lines.wrapped(
        f"{bullet}{finding.rule}  ", finding.title, "title", most=2, label_style=style, width=WIDTH
    )
    out += _wrapped("fix   ", fix.title, "good", indent=indent, most=3)
    if fix.where:
        out += _wrapped("at    ", phrases.place(fix), indent=indent, most=2)
    if fix.typed:
        out += _wrapped("type  ", " ".join(fix.typed), "code", indent=indent, most=2)
    if gain := phrases.gain(finding.saving):
        out += _wrapped("gain  ", gain, indent=indent, most=2)
    if saved := phrases.saved(report, finding):
        out += _wrapped("      ", saved, indent=indent, most=2)
    if tried := phrases.by_try(report, finding):
        out += _wrapped("      ", f"{BY_TRY}: {tried}", indent=indent, most=2)
    return out
