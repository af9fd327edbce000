"""Composes views from panels; the style sheet decides which panels show at which size."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.fact_rows import rows
from rn50_advisor.advisor.tui.panels.budget_panel import BudgetPanel, legend
from rn50_advisor.advisor.tui.panels.capacity_panel import CapacitiesPanel, LoadersPanel
from rn50_advisor.advisor.tui.panels.check_panel import GapsPanel, OutcomesPanel, OverheadPanel, RunPanel
from rn50_advisor.advisor.tui.panels.finding_detail import FindingDetail
from rn50_advisor.advisor.tui.panels.finding_list import FindingList
from rn50_advisor.advisor.tui.panels.gpu_panel import AlarmingGpusPanel, DeepPanel, GpuProcessesPanel, GpusPanel
from rn50_advisor.advisor.tui.panels.history_panel import GpuHistoryPanel, PhasesPanel, RankHistoryPanel, TimeLostPanel
from rn50_advisor.advisor.tui.panels.host_panel import HostPanel
from rn50_advisor.advisor.tui.panels.now_panel import NowPanel
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.panels.rank_panel import RankTable
from rn50_advisor.advisor.tui.panels.throughput_panel import ThroughputPanel
from rn50_advisor.advisor.tui.panels.trial_panel import TrialAnswer, TrialDetail, TrialTable
from rn50_advisor.advisor.tui.styles.drawing import labelled


class LegendPanel(Panel):
    TITLE = "Critical path"

    def titled(self, report: Report) -> str:
        return f"{self.TITLE} · exchange" if self._exchange(report) else self.TITLE

    def draw(self, report: Report, width: int) -> list[Content]:
        shares = legend(report.budget.critical, width) if report.budget.critical else []
        return [*shares, *labelled(self._exchange(report), width)]

    def _exchange(self, report: Report) -> list[tuple[str, str]]:
        return [] if self.brief else rows(report.facts, "exchange")


class Overview(Container):
    """The view to leave open all day."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="left"):
            yield AlarmingGpusPanel(id="gpus-alarming")
            yield ThroughputPanel(id="throughput")
            yield BudgetPanel(id="budget")
            yield CapacitiesPanel(id="capacities")
            yield NowPanel(id="now")
        with Vertical(id="middle"):
            yield FindingList(id="finding-list-short")
            yield FindingDetail(id="finding-detail-short")
        with VerticalScroll(id="right"):
            yield GpusPanel(id="gpus-short")
            yield HostPanel(id="host-short")


class Findings(Container):
    def compose(self) -> ComposeResult:
        yield FindingList(id="finding-list")
        yield FindingDetail(id="finding-detail")


class Ranks(Vertical):
    def compose(self) -> ComposeResult:
        yield RankTable(id="rank-table")
        yield LegendPanel(id="rank-legend")


class MachineView(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield GpusPanel(id="gpus")
        yield GpuProcessesPanel(id="gpu-processes")
        yield DeepPanel(id="deep")
        yield HostPanel(id="host")


class OverTime(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield TimeLostPanel(id="time-lost")
        yield PhasesPanel(id="phases")
        yield RankHistoryPanel(id="rank-history")
        yield GpuHistoryPanel(id="gpu-history")


class Trials(Vertical):
    """`run`: where the run lies, if the screen knows."""

    def __init__(self, run: Path | None, *, id: str) -> None:
        super().__init__(id=id)
        self._run = run

    def compose(self) -> ComposeResult:
        yield TrialAnswer(self._run, id="trial-answer")
        yield TrialTable(id="trial-table")
        yield TrialDetail(id="trial-detail")

    @on(TrialTable.Chosen)
    def _chosen(self, event: TrialTable.Chosen) -> None:
        self.query_one(TrialDetail).choose(event.row)


class Checks(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield OutcomesPanel(id="outcomes")
        yield GapsPanel(id="gaps")
        yield OverheadPanel(id="overhead")
        yield LoadersPanel(id="loaders")
        yield RunPanel(id="run")
