"""The findings, worst first, what one explains indented below it; the cursor is the screen's selected finding."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.gain_words import speedup
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.advisor.tui.row_filter import keeps_finding
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, unmarked
from rn50_advisor.advisor.tui.styles.severity_styles import severity_style


def finding_key(finding: Finding) -> str:
    """Stays the same from one report to the next, so the selection does."""
    scope = finding.scope
    return f"{finding.rule}|{','.join(map(str, scope.ranks))}|{','.join(map(str, scope.gpus))}|{','.join(scope.hosts)}"


def in_reading_order(findings: tuple[Finding, ...]) -> list[Finding]:
    """Roots in the report's order, each followed by what it explains."""
    rules = {f.rule for f in findings}
    roots = [f for f in findings if f.explained_by not in rules or f.explained_by == f.rule]
    ordered: list[Finding] = []
    for root in roots:
        ordered += [root, *(f for f in findings if f.explained_by == root.rule and f is not root and f not in roots)]
    return [*ordered, *(f for f in findings if f not in ordered)]


def is_symptom(finding: Finding, report: Report) -> bool:
    """True if another finding of the report explains it: then severity and gain are those of its cause."""
    return finding.explained_by != finding.rule and any(f.rule == finding.explained_by for f in report.findings)


def scope_words(finding: Finding) -> str:
    scope = finding.scope
    words = []
    for name, members in (("rank", scope.ranks), ("GPU", scope.gpus)):
        if members:
            shown = ", ".join(map(str, members[:6])) + (f" and {len(members) - 6} more" if len(members) > 6 else "")
            words.append(f"{name}{'s' if len(members) > 1 else ''} {shown}")
    if scope.hosts:
        words.append(f"on {', '.join(scope.hosts[:3])}")
    if scope.since_step:
        words.append(f"since step {scope.since_step:,}")
    return " · ".join(words) or "whole job"


class FindingList(OptionList):
    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="report")
        self.border_title = "Findings"
        self.report: Report | None = None
        self.needle = ""
        self._shown: dict[str, str] | None = None

    def on_resize(self) -> None:
        self._shown = None
        self.show(self.report)

    def show(self, report: Report | None) -> None:
        self.report = report
        width = self.scrollable_content_region.width - 2
        if report is None or width <= 0:
            return
        findings = [f for f in in_reading_order(report.findings) if keeps_finding(self.needle, f)]
        prompts = {finding_key(f): self._prompt(f, width) for f in findings}
        self.border_title = self._titled(len(findings), len(report.findings))
        if self._shown and list(prompts) == list(self._shown):
            for key, prompt in prompts.items():
                if self._shown[key] != prompt.markup:
                    self.replace_option_prompt(key, prompt)
        else:
            self._rebuild(prompts, report)
        self._shown = {key: prompt.markup for key, prompt in prompts.items()}

    def filter(self, needle: str) -> None:
        self.needle = needle
        self.show(self.report)

    def _titled(self, shown: int, found: int) -> str:
        if self.needle:
            return unmarked(f"Findings · {shown} of {found} match {self.needle}")
        return f"Findings · {found}" if found else "Findings · none"

    def _rebuild(self, prompts: dict[str, Content], report: Report) -> None:
        at = self.selected_key()
        with self.prevent(OptionList.OptionHighlighted):
            self.clear_options()
            self.add_options([Option(prompt, id=key) for key, prompt in prompts.items()])
            if not prompts:
                none = "no findings yet" if report.step_time.steps == 0 else "✔ no findings"
                filtered = "no finding matches: Esc shows all" if report.findings else none
                self.add_option(Option(filtered, disabled=True))
        if prompts:
            self.select_key(at if at in prompts else next(iter(prompts)))

    def _prompt(self, finding: Finding, width: int) -> Content:
        child = self.report is not None and is_symptom(finding, self.report)
        glyph, _, colour = severity_style("info" if child else finding.severity)
        saving = None if child else finding.saving  # its gain is that of its cause
        gain = (
            speedup(saving, about="")
            if saving
            else duration(finding.seconds_per_step)
            if finding.seconds_per_step
            else ""
        )
        gain = gain if saving else f"−{gain}" if gain and not finding.fatal else ""
        head = "└ " if child else ""
        word = f"{glyph} {'symptom' if child else finding.severity:<8} "
        scope = fit(scope_words(finding), width - len(head) - len(word) - 8 - len(gain) - 1)
        first = line(muted(head), (word, f"bold {colour}"), (fit(finding.rule, 8), "bold"), muted(scope), f" {gain}")
        return Content("\n").join([first, Content(fit(f"{' ' * len(head)}  {finding.title}", width))])

    def selected_key(self) -> str | None:
        if self.highlighted is None or self.highlighted >= self.option_count:
            return None
        return self.get_option_at_index(self.highlighted).id

    def select_key(self, key: str | None) -> None:
        if key is not None and key != self.selected_key() and key in self._keys():
            self.highlighted = self.get_option_index(key)

    def _keys(self) -> list[str]:
        return [key for i in range(self.option_count) if (key := self.get_option_at_index(i).id) is not None]
