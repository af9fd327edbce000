"""What can be done with the chosen runs of the list: compare, remove, show as a page, find their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from rn50_advisor.advisor.tui.outside_programs import open_page
from rn50_advisor.advisor.tui.runs.list_widgets import Removal, RemoveDialog, TextScreen
from rn50_advisor.advisor.tui.runs.listed_runs import ListedRun, listed
from rn50_advisor.advisor.tui.styles.drawing import harmless

if TYPE_CHECKING:
    from rn50_advisor.advisor.tui.runs.runs_app import RunsApp


@dataclass(frozen=True, slots=True)
class RunActions:
    """What stands behind the list. All are called in threads and raise AdvisorError or OSError."""

    folders: Callable[[], list[Path]]  # newest first
    judge: Callable[[Path], object]  # keeps the verdict beside the run
    compare: Callable[[Sequence[Path]], str]
    page: Callable[[Path], Path]  # writes the report as HTML
    removal: Callable[[Sequence[Path]], Removal]


def compare_chosen(app: RunsApp) -> None:
    chosen = app.state.chosen()
    if len(chosen) < 2:
        app.notify("Mark two runs with Space, then press c.")
        return

    def compared(text: str) -> None:
        app.push_screen(TextScreen("Compared, the oldest first", Content("\n".join(map(harmless, text.split("\n"))))))

    app.notify("Reading the runs to compare …", timeout=2)
    folders = [run.folder for run in chosen]
    app.calls.start(lambda: app.calls.answer(lambda: app.behind.compare(folders), compared, "Not compared"))


def remove_chosen(app: RunsApp) -> None:
    folders = [run.folder for run in app.state.chosen()]
    if not folders:
        app.notify("There is no run to remove.")
        return

    def ask(removal: Removal) -> None:
        app.push_screen(RemoveDialog(removal), partial(answered, removal))

    def answered(removal: Removal, answer: str | None) -> None:
        if answer == "remove":
            app.calls.start(lambda: app.calls.answer(removal.remove, removed, "Not removed"))

    def removed(said: str) -> None:
        app.calls.say(said)
        app.reader.reload()

    app.calls.start(lambda: app.calls.answer(lambda: app.behind.removal(folders), ask, "Not removed"))


def open_page_of(app: RunsApp, run: ListedRun | None) -> None:
    if run is None:
        app.notify("There is no run to show.")
        return

    def write() -> str:
        path = app.behind.page(run.folder)
        return f"Opened {path}" if open_page(path) else f"No browser here. The report is {path}"

    app.notify("Writing the report …", timeout=2)
    app.calls.start(lambda: app.calls.answer(write, app.calls.say, "Not saved"))


class Judging:
    """Finds the verdicts of ended runs without one, run by run."""

    def __init__(self, app: RunsApp, progressed: Callable[[], None]) -> None:
        self._app = app
        self._progressed = progressed
        self.progress: tuple[int, int] | None = None  # how many of how many, while verdicts are being found

    def start(self) -> None:
        folders = [run.folder for run in self._app.state.shown() if run.row.state == "not judged"]
        if self.progress or not folders:
            self._app.notify("Verdicts are being found." if self.progress else "All ended runs have their verdict.")
            return
        self._at((0, len(folders)))
        self._app.calls.start(lambda: self._judge(folders))

    def _judge(self, folders: list[Path]) -> None:
        calls, judge = self._app.calls, self._app.behind.judge
        for number, folder in enumerate(folders, start=1):
            if calls.left.is_set():
                return
            calls.answer(partial(judge, folder), lambda _: None, f"{folder.name} is not judged")
            calls.deliver(self._judged_one, number, len(folders), listed(folder))
        calls.deliver(self._at, None)

    def _judged_one(self, number: int, of: int, run: ListedRun) -> None:
        self.progress = (number, of)
        self._app.reader.receive((run,))

    def _at(self, progress: tuple[int, int] | None) -> None:
        self.progress = progress
        self._progressed()
