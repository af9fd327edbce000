"""The views in one line, the open one marked; a click opens one."""

from __future__ import annotations

from typing import NamedTuple

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from rn50_advisor.advisor.model.report import Report


class View(NamedTuple):
    id: str
    key: str
    title: str
    what: str


VIEWS = (
    View("overview", "1", "Overview", "throughput, step budget, capacities"),
    View("findings", "2", "Findings", "all findings with evidence and fixes"),
    View("ranks", "3", "Ranks", "every rank: where it is, how fast, how often late"),
    View("machine", "4", "Machine", "GPUs and host"),
    View("checks", "5", "Checks", "rules, what was not measured, the advisor's own cost"),
)


class TabBar(Static):
    active: reactive[str] = reactive("overview")
    counts: reactive[tuple[tuple[str, int], ...]] = reactive(())

    def show(self, report: Report | None) -> None:
        if report is None:
            return
        unseen = sum(o.state == "not_measured" for o in report.outcomes) if report.step_time.steps else 0
        self.counts = (("findings", len(report.findings)), ("ranks", len(report.ranks)), ("checks", unseen))

    def watch_active(self) -> None:
        self._redraw()

    def watch_counts(self) -> None:
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        counts = dict(self.counts)
        parts = []
        for view in VIEWS:
            number = f" {counts[view.id]}" if counts.get(view.id) else ""
            unit = " not measured" if view.id == "checks" and number and self.size.width >= 100 else ""
            label = f" {view.key} {view.title}{number}{unit} "
            mark = "▸" if view.id == self.active else " "
            style = "bold reverse" if view.id == self.active else "$foreground 75%"
            parts.append(Content.from_markup(f"[@click=app.show_view('{view.id}')]{mark}{label}[/]").stylize(style))
        self.update(Content("").join(parts))
