"""A finding in full: evidence and thresholds, the change and its place, its gain, and the findings it explains."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from rn50_advisor.advisor.model.findings import Evidence, Finding, Fix
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.visible_text import in_lines
from rn50_advisor.advisor.model.wording import trial_words
from rn50_advisor.advisor.model.wording.evidence_words import amount, grammatical
from rn50_advisor.advisor.model.wording.gain_words import gain
from rn50_advisor.advisor.model.wording.quantities import (
    DASH,
    duration,
    metric_words,
    share,
)
from rn50_advisor.advisor.tui.panels.check_panel import outcome_lines
from rn50_advisor.advisor.tui.panels.finding_list import finding_key, is_symptom, scope_words
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose
from rn50_advisor.advisor.tui.styles.severity_styles import severity_style

_NUMBER = 12


def finding_lines(finding: Finding, report: Report, width: int) -> list[Content]:
    """Pure, so that the copied text is what the screen shows."""
    symptom = is_symptom(finding, report)
    glyph, colour, _ = severity_style("info" if symptom else finding.severity)
    chip = f" {glyph} {'SYMPTOM' if symptom else finding.severity.upper()} "
    titles = prose(finding.title or DASH, width - len(chip) - len(finding.rule) - 2) or [DASH]
    lines = [line((chip, f"bold auto on {colour}"), (f" {finding.rule} ", "bold"), (titles[0], "bold"))]
    lines += [line((text, "bold")) for text in titles[1:]]
    cost = (
        f" · costs {duration(finding.seconds_per_step)} per step"
        if finding.seconds_per_step and not finding.fatal
        else ""
    )
    lines += [
        line(muted(text))
        for text in prose(f"{scope_words(finding)} · confidence {share(finding.confidence)}{cost}", width)
    ]
    if finding.rule == report.verdict.rule and report.verdict.summary:
        lines += [Content(""), *(Content(text) for text in prose(report.verdict.summary, width))]
    if finding.saving and not symptom:  # its gain is that of its cause
        saving = finding.saving
        first, *more = prose(gain(saving), width - 6) or [DASH]
        lines += [Content(""), line(("Gain  ", "bold $text-success"), (first, "bold"))]
        lines += [line((f"      {text}", "bold")) for text in more]
        lines += [line(muted(f"      {text}")) for text in prose(saving.basis, width - 6)]
    if tried := trial_words.of_finding(report.tried, finding):
        head, *more = prose(tried, width - 6)
        lines += [Content(""), line(("Tried ", "bold"), (head, "bold"))]
        lines += [line((f"      {text}", "bold")) for text in more]
    lines += _evidence(finding.evidence, width)
    lines += _fixes(finding.fixes, width)
    return [*lines, *_relations(finding, report, width)]


def _evidence(evidence: tuple[Evidence, ...], width: int) -> list[Content]:
    if not evidence:
        return []
    name = min(max(len(metric_words(e.metric)) for e in evidence), max(width - 2 * _NUMBER - 4, 12))
    lines = [
        Content(""),
        line((fit("Measured", name), "bold"), muted(f"  {'value':>{_NUMBER}}  {'threshold':>{_NUMBER}}")),
    ]
    for row in evidence:
        text = amount(row, row.value)
        limit = amount(row, row.threshold)
        if len(text) > _NUMBER:  # a stack or a name takes the threshold's place, and lines of its own beyond
            words = prose(text, width - name - 2) or [DASH]
            lines.append(line(fit(metric_words(row.metric), name), "  ", (words[0], "bold")))
            lines += [line(" " * (name + 2), (more, "bold")) for more in words[1:]]
        else:
            *before, metric = prose(metric_words(row.metric), name) or [DASH]
            lines += [Content(part) for part in before]
            lines.append(
                line(fit(metric, name), "  ", (fit(text, _NUMBER, True), "bold"), f"  {fit(limit, _NUMBER, True)}")
            )
        lines += [line(muted(f"  {note}")) for note in prose(grammatical(row.note), width - 2)]
    return lines


def _fixes(fixes: tuple[Fix, ...], width: int) -> list[Content]:
    lines: list[Content] = [Content(""), line(("What to change", "bold"))] if fixes else []
    for number, fix in enumerate(fixes, 1):
        first, *rest = prose(f"{fix.title or DASH} ({fix.effort})", width - 3) or [DASH]
        lines += [line((f"{number}. ", "bold $text-success"), first), *(Content(f"   {text}") for text in rest)]
        if fix.where:
            lines.append(
                line("   ", (fit(f"{fix.where.file}:{fix.where.line}", width - 3).rstrip(), "underline $text-primary"))
            )
        lines += [*change_lines(fix.change, width), *diff_lines(fix.diff or "", width)]
    return lines


def change_lines(change: str, width: int) -> list[Content]:
    lines = []
    for source in change.splitlines():
        indent = " " * (len(source) - len(source.lstrip()))
        for text in prose(source.strip(), width - 5 - len(indent), indent="  ") or [""]:
            lines.append(line(("   │ ", "$success"), f"{indent}{text}"))
    return lines


def diff_lines(text: str, width: int) -> list[Content]:
    """Cut, not wrapped: a line of code broken in two would be read as two. What is copied has it whole."""
    colours = {"+": "$text-success", "-": "$text-error", "@": "$text-primary"}
    rows = [row.expandtabs(4) for row in text.rstrip("\n").split("\n")] if text else []
    return [line("   ", (fit(row, width - 3).rstrip() or " ", colours.get(row[:1], ""))) for row in rows]


def _relations(finding: Finding, report: Report, width: int) -> list[Content]:
    titles = {f.rule: f.title for f in report.findings}
    rows = [("explains", rule) for rule in finding.explains]
    if finding.explained_by:
        rows.append(("explained by", finding.explained_by))
    if not rows:
        return []
    texts = [f"{word} {rule} {titles.get(rule, '')}".rstrip() for word, rule in rows]
    return [Content(""), *(line(muted("→ "), fit(text, width - 2).rstrip()) for text in texts)]


def finding_text(finding: Finding, report: Report) -> str:
    """The text to copy: the lines of the screen, and each diff once more in the form that `patch` accepts."""
    text = "\n".join(content.plain.rstrip() for content in finding_lines(finding, report, 100)) + "\n"
    diffs = [in_lines(fix.diff) for fix in finding.fixes if fix.diff]
    return "\n".join([text, *diffs]) if diffs else text


class DetailPanel(Panel):
    def __init__(self) -> None:
        super().__init__()
        self.key: str | None = None

    def draw(self, report: Report, width: int) -> list[Content]:
        finding = next((f for f in report.findings if finding_key(f) == self.key), None)
        if finding is None:
            return outcome_lines(report, width)  # nothing to fix: then what was looked at
        return finding_lines(finding, report, width)


class FindingDetail(VerticalScroll):
    """Scrolls where the finding says more than the pane can show."""

    def compose(self) -> ComposeResult:
        self.border_title = "Evidence"
        yield DetailPanel()

    def select(self, key: str | None) -> None:
        panel = self.query_one(DetailPanel)
        if panel.key != key:
            panel.key = key
            self.border_title = "Evidence and fix"
            self.scroll_home(animate=False)
            panel.redraw()
