"""Calls in threads whose results reach the screen of the runs list, and the reading of its rows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.runs.listed_runs import ListedRun, ListState, listed
from rn50_advisor.advisor.tui.styles.drawing import unmarked

_DELIVER_S = 0.1  # rows reach the screen this often while many are read


class BackgroundCalls:
    """A screen that was left hears nothing of them."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.left = threading.Event()

    def start(self, call: Callable[[], None]) -> None:
        """In a daemon thread: whoever quits does not wait for a long analysis."""
        threading.Thread(target=call, daemon=True).start()

    def deliver(self, call: Callable[..., None], *values: object) -> None:
        """Calls back in the screen's thread."""
        if not self.left.is_set():
            with contextlib.suppress(RuntimeError):
                self._app.call_later(call, *values)

    def answer(self, call: Callable[[], object], receive: Callable[..., None], failed: str) -> None:
        """Calls in this thread and passes the result on; a failure becomes a notice."""
        try:
            value = call()
        except Exception as error:  # noqa: BLE001 - a run that cannot be read is no reason to lose the screen
            self.deliver(self.say, f"{failed}: {words(error)}", "error")
        else:
            self.deliver(receive, value)

    def say(self, text: str, severity: str = "information") -> None:
        self._app.notify(unmarked(text), severity="error" if severity == "error" else "information", timeout=8)


class RunReader:
    """Reads rows in portions, so that hundreds of runs neither delay the first frame nor block keys."""

    def __init__(
        self,
        calls: BackgroundCalls,
        state: ListState,
        *,
        folders: Callable[[], list[Path]],
        changed: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._state = state
        self._folders = folders
        self._changed = changed
        self.trouble = ""
        self.loaded = bool(state.runs)
        self._busy = False

    def reload(self) -> None:
        if not self._busy:
            self._busy = True
            self._calls.start(self._read)

    def _read(self) -> None:
        trouble, present = "", None
        try:
            folders = self._folders()
            present = {str(folder) for folder in folders}
            portion: list[ListedRun] = []
            since_s = time.monotonic()
            for folder in folders:
                if self._calls.left.is_set():
                    return
                known = self._state.runs.get(str(folder))
                if known is None or not known.final:
                    portion.append(listed(folder))
                if portion and time.monotonic() - since_s > _DELIVER_S:
                    self._calls.deliver(self.receive, tuple(portion))
                    portion, since_s = [], time.monotonic()
            self._calls.deliver(self.receive, tuple(portion))
        except Exception as error:  # noqa: BLE001 - a folder that cannot be read now may be readable in a second
            trouble = words(error)
        self._calls.deliver(self._read_all, present, trouble)

    def receive(self, portion: tuple[ListedRun, ...]) -> None:
        self._state.runs.update({str(run.folder): run for run in portion})
        if portion:
            self._changed()

    def _read_all(self, present: set[str] | None, trouble: str) -> None:
        self._busy = False
        news = (not self.loaded, self.trouble != trouble)
        self.loaded, self.trouble = True, trouble
        gone = self._state.runs.keys() - present if present is not None else set()
        for name in gone:
            del self._state.runs[name]
        self._state.marked -= gone
        if gone or any(news):
            self._changed()
