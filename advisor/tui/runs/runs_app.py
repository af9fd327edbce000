"""The screen of the runs list: opens, compares, judges and removes runs through functions that it is given."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.tui import app as run_screen
from rn50_advisor.advisor.tui.outside_programs import open_page
from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.row_filter import FilterLine
from rn50_advisor.advisor.tui.runs.list_widgets import KEYS, Removal, RemoveDialog, RunCommands, RunTable, TextScreen
from rn50_advisor.advisor.tui.runs.listed_runs import (
    ORDERS,
    ListedRun,
    ListState,
    about_lines,
    head_line,
    listed,
    run_line,
)
from rn50_advisor.advisor.tui.styles.drawing import harmless, line, muted, unmarked

if sys.platform == "win32":
    TerminalDriver = None
else:
    from rn50_advisor.advisor.tui.terminal_driver import TerminalDriver

RELOAD_S = 5.0
_DELIVER_S = 0.1  # rows reach the screen this often while many are read
_STYLE_SHEET = Path(run_screen.__file__).with_name("app.tcss")
LEFT = "left"  # the answer of an opened run that ends the list, too


@dataclass(frozen=True, slots=True)
class RunActions:
    """What stands behind the list. All are called in threads and raise AdvisorError or OSError."""

    folders: Callable[[], list[Path]]  # newest first
    judge: Callable[[Path], object]  # keeps the verdict beside the run
    compare: Callable[[Sequence[Path]], str]
    page: Callable[[Path], Path]  # writes the report as HTML
    removal: Callable[[Sequence[Path]], Removal]


class RunsApp(App[Path]):
    """`run` returns the folder of the run to open; None if the screen was left."""

    CSS_PATH = _STYLE_SHEET
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
        self.trouble = ""
        self.loaded = bool(state.runs)
        self._busy = False
        self._judged: tuple[int, int] | None = None  # how many of how many, while verdicts are being found
        self._left = threading.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="list-title")
        yield Static(id="list-head")
        yield RunTable(id="run-table")
        yield Static(id="about")
        find = FilterLine(id="filter")
        find.placeholder = "filter runs: name, train.py, bottleneck, dat003; Enter keeps, Esc shows all"
        yield find
        yield Footer(show_command_palette=False)  # its word would hide others; Ctrl-P opens it

    def on_mount(self) -> None:
        self.query_one(RunTable).focus()
        self.draw()
        if self.notice:
            self._say(self.notice, "error")
        self.reload()
        self.set_interval(RELOAD_S, self.reload)

    def on_unmount(self) -> None:
        self._left.set()

    def on_resize(self) -> None:
        self.draw()

    # Reading, in a thread: rows arrive in portions, so that hundreds of runs neither delay the first frame nor block keys.

    def reload(self) -> None:
        if not self._busy:
            self._busy = True
            self._in_thread(self._read)

    def _in_thread(self, call: Callable[[], None]) -> None:
        """In a daemon thread: whoever quits does not wait for a long analysis."""
        threading.Thread(target=call, daemon=True).start()

    def _deliver(self, call: Callable[..., None], *values: object) -> None:
        """Calls back in the screen's thread. A screen that was left hears nothing."""
        if not self._left.is_set():
            with contextlib.suppress(RuntimeError):
                self.call_later(call, *values)

    def _read(self) -> None:
        trouble, present = "", None
        try:
            folders = self.behind.folders()
            present = {str(folder) for folder in folders}
            portion: list[ListedRun] = []
            since_s = time.monotonic()
            for folder in folders:
                if self._left.is_set():
                    return
                known = self.state.runs.get(str(folder))
                if known is None or not known.final:
                    portion.append(listed(folder))
                if portion and time.monotonic() - since_s > _DELIVER_S:
                    self._deliver(self._receive, tuple(portion))
                    portion, since_s = [], time.monotonic()
            self._deliver(self._receive, tuple(portion))
        except Exception as error:  # noqa: BLE001 - a folder that cannot be read now may be readable in a second
            trouble = words(error)
        self._deliver(self._read_all, present, trouble)

    def _receive(self, portion: tuple[ListedRun, ...]) -> None:
        self.state.runs.update({str(run.folder): run for run in portion})
        if portion:
            self.draw()

    def _read_all(self, present: set[str] | None, trouble: str) -> None:
        self._busy = False
        news = (not self.loaded, self.trouble != trouble)
        self.loaded, self.trouble = True, trouble
        gone = self.state.runs.keys() - present if present is not None else set()
        for name in gone:
            del self.state.runs[name]
        self.state.marked -= gone
        if gone or any(news):
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
        if not self.loaded:
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
        if self._judged:
            title.append(f"finding verdicts: {self._judged[0]} of {self._judged[1]}")
        parts: list[str | tuple[str, str]] = [("▤ Runs ", "bold $text-primary"), harmless(" · ".join(title))]
        if self.trouble:
            parts = [("✖ ", "bold $text-error"), harmless(self.trouble)]
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
        chosen = self.state.chosen()
        if len(chosen) < 2:
            self.notify("Mark two runs with Space, then press c.")
            return
        self.notify("Reading the runs to compare …", timeout=2)
        folders = [run.folder for run in chosen]
        self._in_thread(lambda: self._answer(lambda: self.behind.compare(folders), self._compared, "Not compared"))

    def _compared(self, text: str) -> None:
        self.push_screen(TextScreen("Compared, the oldest first", Content("\n".join(map(harmless, text.split("\n"))))))

    def _answer(self, call: Callable[[], object], receive: Callable[..., None], failed: str) -> None:
        """Calls in this thread and passes the result on; a failure becomes a notice."""
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - a run that cannot be read is no reason to lose the screen
            self._deliver(self._say, f"{failed}: {words(error)}", "error")
        else:
            self._deliver(receive, value)

    def _say(self, text: str, severity: str = "information") -> None:
        self.notify(unmarked(text), severity="error" if severity == "error" else "information", timeout=8)

    def action_remove(self) -> None:
        self._under_cursor()
        folders = [run.folder for run in self.state.chosen()]
        if not folders:
            self.notify("There is no run to remove.")
            return
        self._in_thread(lambda: self._answer(lambda: self.behind.removal(folders), self._ask_removal, "Not removed"))

    def _ask_removal(self, removal: Removal) -> None:
        def answered(answer: str | None) -> None:
            if answer == "remove":
                self._in_thread(lambda: self._answer(removal.remove, self._removed, "Not removed"))

        self.push_screen(RemoveDialog(removal), answered)

    def _removed(self, said: str) -> None:
        self._say(said)
        self.reload()

    def action_open_page(self) -> None:
        run = self._under_cursor()
        if run is None:
            self.notify("There is no run to show.")
            return
        self.notify("Writing the report …", timeout=2)

        def write() -> str:
            path = self.behind.page(run.folder)
            return f"Opened {path}" if open_page(path) else f"No browser here. The report is {path}"

        self._in_thread(lambda: self._answer(write, self._say, "Not saved"))

    def action_judge(self) -> None:
        folders = [run.folder for run in self.state.shown() if run.row.state == "not judged"]
        if self._judged or not folders:
            self.notify("Verdicts are being found." if self._judged else "All ended runs have their verdict.")
            return
        self._judged = (0, len(folders))
        self._draw_about()
        self._in_thread(lambda: self._judge(folders))

    def _judge(self, folders: list[Path]) -> None:
        for number, folder in enumerate(folders, start=1):
            if self._left.is_set():
                return
            self._answer(partial(self.behind.judge, folder), lambda _: None, f"{folder.name} is not judged")
            self._deliver(self._judged_one, number, len(folders), listed(folder))
        self._deliver(self._judged_all)

    def _judged_one(self, number: int, of: int, run: ListedRun) -> None:
        self._judged = (number, of)
        self._receive((run,))

    def _judged_all(self) -> None:
        self._judged = None
        self._draw_about()

    def action_help(self) -> None:
        lines = [line((f"{key.shown:<8}", "bold"), key.what) for key in KEYS]
        click = "click a run to choose it, again to open it, its first cells to mark it; a column's name to order by it"
        lines += [line((f"{'mouse':<8}", "bold"), click), Content(""), line(muted("–  not measured or not stored"))]
        self.push_screen(TextScreen("Help", Content("\n").join(lines)))

    def action_interrupt_job(self) -> None:
        self.exit(None)

    async def action_quit(self) -> None:
        self.exit(None)


class OpenedRun(run_screen.AdvisorApp):
    """A run's screen over the list: q and Esc go back to the list, Ctrl-C leaves both (the answer LEFT)."""

    CSS_PATH = str(_STYLE_SHEET)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,ctrl+q", "quit", "Back", key_display="q")]

    def action_clear_filter(self) -> None:
        if self.needle:
            super().action_clear_filter()
        else:
            self.exit("quit")

    def action_interrupt_job(self) -> None:
        self.exit(LEFT)
