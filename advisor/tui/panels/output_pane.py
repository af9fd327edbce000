"""The job's output beside the verdict: follow mode, scroll back, search."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from rn50_advisor.advisor.model.visible_text import coloured
from rn50_advisor.advisor.run.launch.output_lines import NewOutput
from rn50_advisor.advisor.tui.output_log import OutputLog
from rn50_advisor.advisor.tui.output_source import OutputSource
from rn50_advisor.advisor.tui.polling import Poller
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, unmarked

_LOOK_S = 0.25  # a burst of thousands of lines between two looks is one update


class OutputPane(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("end", "follow", "follow the end", show=False),
        Binding("slash", "search", "search the output", show=False),
        Binding("escape", "leave_search", "leave the search", show=False),
        Binding("enter", "find_next", "next match, upwards", show=False),
    ]

    class Grew(Message):
        """The pane shows new output; `last` is its newest line."""

        def __init__(self, last: str) -> None:
            super().__init__()
            self.last = last

    def __init__(self, source: OutputSource, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._source = source
        self._known = 0
        self._missing = ""  # what was searched for in vain

    def compose(self) -> ComposeResult:
        yield OutputLog(id="log")
        yield Input(placeholder="search the output: Enter next match upwards, Esc close", id="needle")

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.caption()
        feed = Poller(self.app, lambda: self._source.lines_since(self._known), self._receive)
        feed.tick()
        self.set_interval(_LOOK_S, feed.tick)

    @property
    def log_view(self) -> OutputLog:
        return self.query_one(OutputLog)

    def _receive(self, news: NewOutput | None, trouble: str) -> None:
        if trouble:
            self.border_title = unmarked(f"Output · ✖ cannot be read: {trouble}")
        elif news and self.is_attached and self.log_view.would_change(news):
            self._known = news.total
            self.log_view.receive(news)
            self.caption()
            self.post_message(self.Grew(self.log_view.last_line()))

    def caption(self) -> None:
        view = self.log_view
        if self._missing:
            self.border_title = unmarked(f"Output · not found: {self._missing}")
            return
        mode = "following" if view.follow else "scrolled back: f follows again"
        self.border_title = f"Output · {view.total:,} lines · {mode}"

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.call_after_refresh(self.caption)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.call_after_refresh(self.caption)

    def on_key(self, event: events.Key) -> None:
        self.call_after_refresh(self.caption)

    def action_follow(self) -> None:
        self.log_view.go_to_end()
        self.caption()

    def action_search(self) -> None:
        needle = self.query_one(Input)
        needle.display = True
        needle.focus()

    def action_leave_search(self) -> None:
        needle = self.query_one(Input)
        if needle.display:
            needle.display = False
            self._find("")
            self.log_view.find("")
            self.log_view.focus()

    def action_find_next(self) -> None:
        self._find(self.log_view.needle)

    @on(Input.Submitted, "#needle")
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._find(event.value)

    def _find(self, needle: str) -> None:
        self._missing = needle if needle and not self.log_view.find(needle) else ""
        self.caption()


class LastLine(Static):
    """The newest line of output while the pane is closed, so that a progress bar is always in sight."""

    def put(self, text: str) -> None:
        width = self.size.width
        self.update(line(muted("▕ "), fit(_bare(text), width - 2)) if width > 2 else "")


def _bare(text: str) -> str:
    from rich.text import Text  # noqa: PLC0415 - only for lines with colours

    return Text.from_ansi(coloured(text)).plain if "\x1b" in text else text
