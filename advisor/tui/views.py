"""How the parts make up the views; which of them are seen at which size is the style sheet's business."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from advisor.core.report import Report
from advisor.core.told import rows
from advisor.tui.budget import BudgetPanel, legend
from advisor.tui.capacities import CapacitiesPanel
from advisor.tui.checks import GapsPanel, OutcomesPanel, OverheadPanel, RunPanel
from advisor.tui.deep import DeepPanel
from advisor.tui.draw import labelled
from advisor.tui.finding_detail import FindingDetail
from advisor.tui.finding_list import FindingList
from advisor.tui.gpus import GpusPanel
from advisor.tui.host import HostPanel
from advisor.tui.loaders import LoadersPanel
from advisor.tui.now import NowPanel
from advisor.tui.panel import Panel
from advisor.tui.ranks import RankTable
from advisor.tui.throughput import Throughput


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
    """What one leaves open all day."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="left"):
            yield Throughput(id="throughput")
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


class Machine(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield GpusPanel(id="gpus")
        yield DeepPanel(id="deep")
        yield HostPanel(id="host")


class Checks(VerticalScroll):
    def compose(self) -> ComposeResult:
        yield OutcomesPanel(id="outcomes")
        yield GapsPanel(id="gaps")
        yield OverheadPanel(id="overhead")
        yield LoadersPanel(id="loaders")
        yield RunPanel(id="run")
