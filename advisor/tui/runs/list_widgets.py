"""Pieces of the runs list: its keys and their commands, its table, a page of text, and the question before runs are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Provider
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, OptionList, Static

from rn50_advisor.advisor.tui.dialog import Choice
from rn50_advisor.advisor.tui.runs.listed_runs import ORDERS
from rn50_advisor.advisor.tui.styles.drawing import harmless, unmarked


@dataclass(frozen=True, slots=True)
class Removal:
    """What would be removed, in words, and the function that removes it and returns what was done."""

    question: str
    note: str
    remove: Callable[[], str]


@dataclass(frozen=True, slots=True)
class ListKey:
    keys: str
    shown: str
    action: str
    what: str
    footer: str = ""


KEYS = (
    ListKey("enter", "Enter", "open_run", "open the run: live while it is recorded, else as a replay", "Open"),
    ListKey("space", "Space", "mark", "mark the run, or take the mark away", "Mark"),
    ListKey("c", "c", "compare", "compare the marked runs, the oldest first", "Compare"),
    ListKey("d,delete", "d", "remove", "remove the marked runs or this one; asks first", "Remove"),
    ListKey("w", "w", "open_page", "write the run's report as HTML and open it in a browser", "HTML"),
    ListKey("v", "v", "judge", "find and keep the verdicts of ended runs without one"),
    ListKey("slash", "/", "filter_rows", "filter by name, command, verdict or rule; Esc shows all", "Find"),
    ListKey("o", "o", "next_order", f"order by {', '.join(ORDERS)}"),
    ListKey("escape", "Esc", "clear", "show all runs again; then take all marks away"),
    ListKey("question_mark,f1", "?", "help", "this help", "Help"),
    ListKey("q,ctrl+q", "q", "quit", "quit", "Quit"),
    ListKey("ctrl+c", "Ctrl-C", "interrupt_job", "quit"),
)


class RunCommands(Provider):
    """The same actions in the command palette."""

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        for key in KEYS:
            yield DiscoveryHit(f"Runs: {key.what}", partial(self.app.run_action, key.action), help=f"key {key.shown}")

    async def search(self, query: str) -> AsyncIterator[Hit]:
        matcher = self.matcher(query)
        for key in KEYS:
            text = f"Runs: {key.what}"
            if (score := matcher.match(text)) > 0:
                call = partial(self.app.run_action, key.action)
                yield Hit(score, matcher.highlight(text), call, help=f"key {key.shown}")


class TextScreen(ModalScreen[None]):
    """A page of text that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "close"),
        Binding("ctrl+c", "app.interrupt_job", "quit", show=False),
    ]

    def __init__(self, title: str, text: Content) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="text-page") as page:
            page.border_title = unmarked(self._title)
            page.border_subtitle = "Esc closes"
            yield Static(self._text)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:  # beside the page
            self.dismiss()


class RemoveDialog(Choice):
    """Asks before runs are removed; Enter by habit removes nothing."""

    def __init__(self, removal: Removal) -> None:
        answers = (("y", "remove", "Remove"), ("escape", "keep", "Back"))
        super().__init__(harmless(removal.question), answers, removal.note)

    def on_mount(self) -> None:
        self.query(Button).last().focus()


class RunTable(OptionList):
    """A line for each run. A click chooses a run, another one opens it; a click on its first cells marks it."""

    BINDINGS: ClassVar[list[BindingType]] = [  # the list's own keys, which hide the app's
        Binding("enter", "select", "Open", key_display="Enter"),
        Binding("space", "app.mark", "Mark", key_display="Space"),
    ]

    async def _on_click(self, event: events.Click) -> None:
        event.prevent_default()
        index = event.style.meta.get("option")
        if not isinstance(index, int) or self.options[index].disabled:
            return
        again, self.highlighted = self.highlighted == index, index
        if event.get_content_offset_capture(self).x <= 1:
            self.app.call_later(self.app.run_action, "mark")
        elif again:
            self.action_select()
