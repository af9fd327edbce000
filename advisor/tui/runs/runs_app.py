"""The screen of the runs list: opens, compares, judges and removes runs through functions that it is given."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.tui.panels.key_bar import KeyBar
from rn50_advisor.advisor.tui.row_filter import FilterLine
from rn50_advisor.advisor.tui.runs.background_calls import BackgroundCalls, RunReader
from rn50_advisor.advisor.tui.runs.list_widgets import KEYS, RunCommands, RunTable, TextScreen
from rn50_advisor.advisor.tui.runs.listed_runs import ORDERS, ListedRun, ListState, about_lines, head_line, run_line
from rn50_advisor.advisor.tui.runs.opened_run import STYLE_SHEET
from rn50_advisor.advisor.tui.runs.run_actions import Judging, RunActions, compare_chosen, open_page_of, remove_chosen
from rn50_advisor.advisor.tui.styles.drawing import harmless, line, muted, unmarked

if sys.platform == "win32":
    TerminalDriver = None
else:
    from rn50_advisor.advisor.tui.terminal_driver import TerminalDriver

RELOAD_S = 5.0


class RunsApp(App[Path]):
    """`run` returns the folder of the run to open; None if the screen was left."""

    CSS_PATH = STYLE_SHEET
    CSS = """
    #list-title { height: 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis; }
    #list-head { height: 1; text-wrap: nowrap; }
    #list-head { link-style: none; link-style-hover: bold; link-background: initial; link-color: $foreground; }
    RunTable { height: 1fr; border: none; padding: 0; background: $background; }
    RunTable > .option-list--option { text-wrap: nowrap; text-overflow: ellipsis; }
    RunTable > .option-list--option-highlighted { background: $primary 35%; color: $foreground; text-style: bold; }
    #about { height: auto; min-height: 4; max-height: 6; padding: 0 1; border-top: solid $primary 40%; }
    #about { text-wrap: nowrap; text-overflow: ellipsis; }
    TextScreen { align: center middle; background: $background 60%; }
    #text-page { width: 88; max-width: 98%; height: 90%; border: round $primary; background: $surface; padding: 0 1; }
    """
    COMMANDS = App.COMMANDS | {RunCommands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            k.keys, k.action, k.footer or k.what, show=bool(k.footer), key_display=k.shown, priority=k.keys == "ctrl+c"
        )
        for k in KEYS
    ]

    def __init__(self, actions: RunActions, state: ListState, *, place: str, notice: str = "") -> None:
        """`place`: the folder of the runs, in words. `notice`: said at the start, why a run was not opened."""
        super().__init__(driver_class=TerminalDriver)
        self.title = "rn50-advisor runs"
        self.behind = actions
        self.state = state
        self.place = place
        self.notice = notice
        self.calls = BackgroundCalls(self)
        self.reader = RunReader(self.calls, state, folders=actions.folders, changed=self.draw)
        self.judging = Judging(self, self._draw_about)

    def compose(self) -> ComposeResult:
        yield Static(id="list-title")
        yield Static(id="list-head")
        yield RunTable(id="run-table")
        yield Static(id="about")
        find = FilterLine(id="filter")
        find.placeholder = "filter runs: name, train.py, bottleneck, dat003; Enter keeps, Esc shows all"
        yield find
        yield KeyBar(palette=False)  # its word would hide others; Ctrl-P opens it

    def on_mount(self) -> None:
        self.query_one(RunTable).focus()
        self.draw()
        if self.notice:
            self.calls.say(self.notice, "error")
        self.reader.reload()
        self.set_interval(RELOAD_S, self.reader.reload)

    def on_unmount(self) -> None:
        self.calls.left.set()

    def on_resize(self) -> None:
        self.draw()

    # Drawing

    def draw(self) -> None:
        """Draws all lines anew; the cursor stays on its run."""
        base = self.screen_stack[0] if self.screen_stack else None
        if base is None or not self.size.width or not base.query(RunTable):
            return
        state, table = self.state, base.query_one(RunTable)
        shown, width = state.shown(), self.size.width - 2
        now_unix_s = time.time()
        names = [str(run.folder) for run in shown]
        if state.selected not in names:
            state.selected = names[0] if names else None
        lines = [
            run_line(run, width=width, now_unix_s=now_unix_s, marked=str(run.folder) in state.marked) for run in shown
        ]
        with self.prevent(OptionList.OptionHighlighted):
            if names and names == [option.id for option in table.options]:
                for index, text in enumerate(lines):
                    table.replace_option_prompt_at_index(index, text)
            else:
                table.clear_options()
                table.add_options([Option(text, id=name) for name, text in zip(names, lines, strict=True)])
                if not names:
                    table.add_option(Option(self._nothing(), disabled=True))
            table.highlighted = names.index(state.selected) if state.selected is not None else None
        base.query_one("#list-head", Static).update(head_line(width, state.order))
        self._draw_about()

    def _nothing(self) -> str:
        if self.state.runs:
            return "no run matches: Esc shows all"
        if not self.reader.loaded:
            return "… reading"
        return f"no runs in {harmless(self.place)}; record one: rn50-advisor run -- COMMAND"

    def _draw_about(self) -> None:
        base, state = self.screen_stack[0], self.state
        run = state.runs.get(state.selected or "")
        about = base.query_one("#about", Static)
        about.update(Content("\n").join(about_lines(run, self.size.width - 3)) if run else "")
        title = [f"{fmt.counted(len(state.runs), 'run')} in {self.place}"]
        if state.needle:
            title.append(f"{len(state.shown())} match {state.needle}")
        if state.marked:
            title.append(f"{len(state.marked)} marked")
        if self.judging.progress:
            title.append("finding verdicts: {} of {}".format(*self.judging.progress))
        parts: list[str | tuple[str, str]] = [("▤ Runs ", "bold $text-primary"), harmless(" · ".join(title))]
        if self.reader.trouble:
            parts = [("✖ ", "bold $text-error"), harmless(self.reader.trouble)]
        base.query_one("#list-title", Static).update(line(" ", *parts))

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_id is not None:
            self.state.selected = event.option_id
            self._draw_about()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self.state.selected = event.option_id
            self.action_open_run()

    @on(FilterLine.Filtered)
    def _filtered(self, event: FilterLine.Filtered) -> None:
        self.state.needle = event.needle
        self.draw()
        if event.left:
            self.query_one(RunTable).focus()

    # Actions

    def _under_cursor(self) -> ListedRun | None:
        """The run under the cursor, also where the message that the cursor moved is still on its way."""
        table = self.screen_stack[0].query_one(RunTable)
        if table.highlighted is not None:
            self.state.selected = table.options[table.highlighted].id
        return self.state.runs.get(self.state.selected or "")

    def action_open_run(self) -> None:
        run = self._under_cursor()
        if run is None:
            self.notify("There is no run to open.")
        elif run.row.state == "unreadable":
            self.notify(unmarked(run.row.title), severity="error", timeout=8)
        else:
            self.exit(run.folder)

    def action_mark(self) -> None:
        table, run = self.screen_stack[0].query_one(RunTable), self._under_cursor()
        if run is None:
            return
        self.state.marked ^= {str(run.folder)}
        self.draw()
        if table.has_focus and table.highlighted is not None:
            table.highlighted = min(table.highlighted + 1, table.option_count - 1)

    def action_filter_rows(self) -> None:
        self.query_one(FilterLine).ask()

    def action_clear(self) -> None:
        if self.state.needle:
            self.query_one(FilterLine).action_clear_filter()
        elif self.state.marked:
            self.state.marked.clear()
            self.draw()

    def action_next_order(self) -> None:
        self.action_order_by(ORDERS[(ORDERS.index(self.state.order) + 1) % len(ORDERS)])

    def action_order_by(self, order: str) -> None:
        self.state.order = order
        self.draw()
        self.notify(f"Ordered by {order}.", timeout=2)

    def action_compare(self) -> None:
        compare_chosen(self)

    def action_remove(self) -> None:
        self._under_cursor()
        remove_chosen(self)

    def action_open_page(self) -> None:
        open_page_of(self, self._under_cursor())

    def action_judge(self) -> None:
        self.judging.start()

    def action_help(self) -> None:
        lines = [line((f"{key.shown:<8}", "bold"), key.what) for key in KEYS]
        click = "click a run to choose it, again to open it, its first cells to mark it; a column's name to order by it"
        lines += [line((f"{'mouse':<8}", "bold"), click), Content(""), line(muted("–  not measured or not stored"))]
        self.push_screen(TextScreen("Help", Content("\n").join(lines)))

    def action_interrupt_job(self) -> None:
        self.exit(None)

    async def action_quit(self) -> None:
        self.exit(None)
