"""The screen: polls one source, gives its report to every part, turns keys into actions."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import ContentSwitcher, OptionList

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.actions import NEEDS, AdvisorCommands, HelpScreen, Needs, bindings
from rn50_advisor.advisor.tui.fix_actions import copy_change, copy_fix, edit_fix, open_report
from rn50_advisor.advisor.tui.job_control import JobControl
from rn50_advisor.advisor.tui.output_source import OutputSource
from rn50_advisor.advisor.tui.panels.banner import Banner, Trouble
from rn50_advisor.advisor.tui.panels.finding_detail import FindingDetail, finding_text
from rn50_advisor.advisor.tui.panels.finding_list import FindingList, finding_key, in_reading_order
from rn50_advisor.advisor.tui.panels.gpu_panel import GpusPanel
from rn50_advisor.advisor.tui.panels.history_panel import GpuHistoryPanel, RankHistoryPanel
from rn50_advisor.advisor.tui.panels.key_bar import KeyBar
from rn50_advisor.advisor.tui.panels.output_pane import LastLine, OutputPane
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.panels.rank_panel import RankTable
from rn50_advisor.advisor.tui.panels.tab_bar import ReplayBar, TabBar
from rn50_advisor.advisor.tui.panels.throughput_panel import ThroughputPanel
from rn50_advisor.advisor.tui.panels.trial_panel import TrialTable
from rn50_advisor.advisor.tui.panels.verdict_lines import verdict_finding
from rn50_advisor.advisor.tui.polling import Poller, words
from rn50_advisor.advisor.tui.quit_dialog import QuitDialog, SaveReport, ask_and_save
from rn50_advisor.advisor.tui.report_source import JobControls, ReplaySource, ReportSource
from rn50_advisor.advisor.tui.row_filter import FilterLine, keeps_finding
from rn50_advisor.advisor.tui.styles.drawing import unmarked
from rn50_advisor.advisor.tui.views import Checks, Findings, MachineView, OverTime, Overview, Ranks, Trials

if sys.platform == "win32":
    TerminalDriver = None
else:
    from rn50_advisor.advisor.tui.terminal_driver import TerminalDriver

_FOCUS = {
    "findings": "#finding-list",
    "ranks": "#rank-table",
    "machine": "#machine",
    "checks": "#checks",
    "over-time": "#over-time",
    "trials": "#trial-table",
}


def keep_from_collections() -> None:
    """Hides what is alive, mostly modules, from the garbage collector, whose full collections stopped the screen for 60 to 100 ms."""
    gc.collect()
    gc.freeze()


class AdvisorApp(App[str]):
    """`run` returns why the screen was left: ended, detached, stopped, quit or hung up."""

    CSS_PATH = "app.tcss"
    COMMANDS = App.COMMANDS | {AdvisorCommands}
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())

    def __init__(
        self,
        source: ReportSource,
        *,
        output: OutputSource | None = None,
        controls: JobControls | None = None,
        title: str = "",
        save: SaveReport | None = None,
        run: Path | None = None,
        poll_s: float = 1.0,
    ) -> None:
        """`run`: where the run lies, for commands that the screen says."""
        super().__init__(driver_class=TerminalDriver)
        self.title = title
        self.source = source
        self.replay = source if isinstance(source, ReplaySource) else None
        self.output = output
        self.job = JobControl(controls) if controls else None
        self.save = save
        self.run_path = run
        self.report: Report | None = None
        self.selected: str | None = None
        self.needle = ""  # of the filter of findings and ranks
        self.grouped = True  # ranks and GPUs that are alike share a row
        self.output_mode = "closed"
        self._poll_s = poll_s
        self._interrupts = 0
        self._ended = False
        self._reports = Poller(self, source.poll, self._receive_report)

    @property
    def base(self) -> Screen[object]:
        """The screen below any dialogue: reports arrive there while a question stands open."""
        return self.screen_stack[0]

    def compose(self) -> ComposeResult:
        yield Banner(id="banner", fallback_name=self.title)
        yield TabBar(id="tabs")
        yield Trouble(id="trouble", replayed=self.replay is not None)
        with ContentSwitcher(initial="overview", id="views"):
            yield Overview(id="overview")
            yield Findings(id="findings")
            yield Ranks(id="ranks")
            yield MachineView(id="machine")
            yield Checks(id="checks")
            yield OverTime(id="over-time")
            yield Trials(self.run_path, id="trials")
        yield FilterLine(id="filter")
        if self.output:
            yield OutputPane(self.output, id="output")
            yield LastLine(id="last-line")
        if self.replay:
            yield ReplayBar(self.replay, id="replay")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self._fit(self.size)
        if self.output and self.size.height >= 40:
            self._set_output("beside")
        self._reports.tick()
        self.set_interval(self._poll_s, self._tick)

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        """Three widths and four heights; the style sheet does the rest."""
        base = self.base
        for name, reached in (
            ("-wide", size.width >= 130),
            ("-huge", size.width >= 180),
            ("-low", size.height < 28),
            ("-tall", size.height >= 52),
        ):
            base.set_class(reached, name)
        rows = 1 if size.height < 28 else 3 if size.height < 52 else 6
        for part in base.query(ThroughputPanel):
            part.fit_to(rows, compact=size.height < 36)
        for panel in base.query(Panel):
            panel.terminal_lines = size.height
            panel.show(panel.report)
        if self.job:  # the width of the output's pane, open or not: progress bars fill it
            self.job.resize(max(size.height - 7, 5), size.width - (5 if size.height >= 52 else 1))

    def _tick(self) -> None:
        if not self.screen_stack:
            return  # it is being taken down
        self._reports.tick()
        for bar in self.base.query(ReplayBar):
            bar.put()
        if self.job is None or self._ended:
            return
        self._ended = not self.job.running()
        self._show_trouble(None, self.job.trouble if self._ended else "")
        if self._ended:
            kept = (
                "its exit code is unknown; what was recorded remains"
                if self.job.end_unknown()
                else "the final verdict remains"
            )
            self.notify(f"The job has ended; {kept}. q quits.", timeout=10)
        if self._ended or self.job.end_unknown():
            self._show_banner()

    def _receive_report(self, report: Report | None, trouble: str) -> None:
        if report is not None:
            if self.report is None and not self.is_headless:
                self.call_after_refresh(keep_from_collections)
            self.report = report
            for part in self.base.query(".report"):
                try:
                    part.show(report)  # type: ignore[attr-defined]
                except Exception as error:  # noqa: BLE001 - one part that fails must not take the others with it
                    self.log.error(error)
                    trouble = f"a part of the screen failed: {words(error)}"
            self._show_banner()
            self.base.query_one(TabBar).show(report)
            keys = self._keys()
            if self.selected not in keys:
                self._select(keys[0] if keys else None)
        for bar in self.base.query(ReplayBar):
            bar.put()
        self._show_trouble(report, trouble)

    def _show_trouble(self, report: Report | None, trouble: str) -> None:
        notice = self.job.notice() if self.job else ""
        for line in self.base.query(Trouble):
            line.put(report, trouble, notice)

    def _show_banner(self) -> None:
        times = f" × {self._interrupts}" if self._interrupts > 1 else ""
        for banner in self.base.query(Banner):
            banner.stopping = f"interrupt sent{times}" if self._interrupts else ""
            banner.ended = self._ended
            banner.end_unknown = self.job is not None and self.job.end_unknown()
            banner.redraw()

    @on(OutputPane.Grew)
    def _output_grew(self, event: OutputPane.Grew) -> None:
        for line in self.base.query(LastLine) if self.screen_stack else ():
            line.put(event.last)

    def _set_output(self, mode: str) -> None:
        self.output_mode = mode
        for name in ("beside", "alone"):
            self.base.set_class(mode == name, f"-output-{name}")

    def can(self, needs: Needs) -> bool:
        """True if this screen has what the action needs."""
        have = {"replay": self.replay, "output": self.output, "job": self.job, "save": self.save}
        return not needs or have[needs] is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can(NEEDS.get(action, ""))

    def action_show_view(self, view: str) -> None:
        self.base.query_one("#views", ContentSwitcher).current = view
        self.base.query_one(TabBar).active = view
        if self.output_mode == "alone":
            self._set_output("closed")
        self._focus(view)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.can))

    def action_next_finding(self) -> None:
        self._step_finding(1)

    def action_previous_finding(self) -> None:
        self._step_finding(-1)

    def _step_finding(self, by: int) -> None:
        keys = self._keys()
        if not keys:
            self.notify("No finding matches the filter." if self.needle else "There is no finding.")
            return
        if not self._detail_shown():
            self.action_show_view("findings")
            return
        at = keys.index(self.selected) if self.selected in keys else -by
        self._select(keys[(at + by) % len(keys)])

    def _select(self, key: str | None) -> None:
        self.selected = key
        for listed in self.base.query(FindingList):
            listed.select_key(key)
        for detail in self.base.query(FindingDetail):
            detail.select(key)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if isinstance(event.option_list, FindingList) and event.option_id is not None:
            self._select(event.option_id)

    def _keys(self) -> list[str]:
        """The findings that the filter keeps, in the order shown."""
        findings = in_reading_order(self.report.findings) if self.report else []
        return [finding_key(f) for f in findings if keeps_finding(self.needle, f)]

    def _detail_shown(self) -> bool:
        return any(detail.region for detail in self.base.query(FindingDetail) if detail.is_on_screen)

    def _chosen(self) -> Finding | None:
        """The finding whose fix is in sight: the selected one where its details are, else the verdict's."""
        if self.report is None:
            return None
        shown = self.selected if self._detail_shown() else None
        chosen = (f for f in self.report.findings if finding_key(f) == shown)
        return next(chosen, None) or verdict_finding(self.report)

    def action_copy_fix(self) -> None:
        table = self.base.query_one(TrialTable)
        if table.region and table.is_on_screen:
            copy_change(self, table.chosen())
        else:
            copy_fix(self, self._chosen())

    def action_edit_fix(self) -> None:
        edit_fix(self, self._chosen(), self.report)

    def action_open_report(self) -> None:
        if self.report is None:
            self.notify("There is no report yet.")
        elif self.save:
            open_report(self, self.save, self.report)

    def action_filter_rows(self) -> None:
        """Opens the findings where neither they nor the ranks are in sight."""
        listed = [*self.base.query(FindingList), *self.base.query(RankTable)]
        if self.output_mode == "alone" or not any(part.region for part in listed if part.is_on_screen):
            self.action_show_view("findings")
        self.base.query_one(FilterLine).ask()

    def action_clear_filter(self) -> None:
        if self.needle:
            self.base.query_one(FilterLine).action_clear_filter()

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        self.needle = event.needle
        for part in (*self.base.query(FindingList), *self.base.query(RankTable)):
            part.filter(event.needle)
        keys = self._keys()
        if self.selected not in keys:
            self._select(keys[0] if keys else None)
        if event.left:
            self._focus(self.base.query_one("#views", ContentSwitcher).current or "")

    def _focus(self, view: str) -> None:
        """Focuses what the arrow keys move in this view, if it is there."""
        first = self.base.query_one(_FOCUS[view]) if view in _FOCUS else None
        self.base.set_focus(first if first is not None and first.display else None)

    def action_copy_finding(self) -> None:
        findings = in_reading_order(self.report.findings) if self.report else []
        chosen = next((f for f in findings if finding_key(f) == self.selected), findings[0] if findings else None)
        if chosen is None or self.report is None:
            self.notify("There is no finding to copy.")
            return
        self.copy_to_clipboard(finding_text(chosen, self.report))
        self.notify(unmarked(f"{chosen.rule} copied as text."))

    def action_order_ranks(self) -> None:
        self.notify(f"Ranks: {self.base.query_one(RankTable).next_order()}")

    def action_group_alike(self) -> None:
        self.grouped = not self.grouped
        for part in self.base.query(".report"):
            if isinstance(part, (RankHistoryPanel, GpuHistoryPanel, RankTable, GpusPanel)):
                part.group(self.grouped)
        self.notify("Alike ranks and GPUs share a row." if self.grouped else "Each rank and GPU has a row.")

    def action_next_heat(self) -> None:
        self.notify(f"Ranks over time: {self.base.query_one(RankHistoryPanel).next_heat()}")

    def action_toggle_output(self) -> None:
        modes = ["closed", "alone"] if self.size.height < 28 else ["closed", "beside", "alone"]
        at = modes.index(self.output_mode) if self.output_mode in modes else 0
        self._set_output(modes[(at + 1) % len(modes)])
        self.base.set_focus(None if self.output_mode == "closed" else self.base.query_one(OutputPane).log_view)

    def action_search_output(self) -> None:
        if self.output_mode == "closed":
            self.action_toggle_output()
        self.base.query_one(OutputPane).action_search()

    def action_follow_output(self) -> None:
        self.base.query_one(OutputPane).action_follow()

    def action_save_report(self) -> None:
        if self.report is None:
            self.notify("There is no report yet.")
        elif self.save:
            ask_and_save(self, self.save, self.report)

    def action_pause_replay(self) -> None:
        self.base.query_one(ReplayBar).pause()

    def action_seek(self, by_s: float) -> None:
        self.base.query_one(ReplayBar).seek(by_s)
        self._reports.tick()

    def action_leap(self, direction: int) -> None:
        self.base.query_one(ReplayBar).leap(direction)
        self._reports.tick()

    def action_seek_to(self, share: float) -> None:
        self.base.query_one(ReplayBar).seek_to(share)
        self._reports.tick()

    def action_change_speed(self, direction: int) -> None:
        self.base.query_one(ReplayBar).change_speed(direction)

    def action_interrupt_job(self) -> None:
        """Acts like Ctrl-C on a terminal: each press reaches the job, the screen stays. Without a job it ends the screen."""
        if self.job is None:
            self.exit("quit")
        elif not self.job.running():
            self.notify("The job has ended: q quits.")
        else:
            self.job.interrupt()
            self._interrupts += 1
            more = " q offers to terminate it." if self._interrupts > 1 else ""
            self.notify(f"Interrupt sent to the job.{more}", severity="warning")
            self._show_banner()

    async def action_quit(self) -> None:
        if self.job is None:
            self.exit("quit")
        elif not self.job.running():
            self.exit("ended")
        elif not isinstance(self.screen, QuitDialog):
            self.push_screen(QuitDialog(self.job), self._quit_answered)

    def _quit_answered(self, answer: str | None) -> None:
        if answer in ("stopped", "detached"):
            self.exit(answer)
