"""A function called in a worker thread, never twice at once; what it returned reaches the screen as one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from textual.app import App
from textual.css.query import NoMatches

from rn50_advisor.advisor.model.errors import AdvisorError

T = TypeVar("T")


def words(error: Exception) -> str:
    """One line for the screen."""
    if isinstance(error, AdvisorError):
        return f"{error.message} → {error.hint}" if error.hint else error.message
    return f"{type(error).__name__}: {error}"


class Poller(Generic[T]):
    """`tick` as often as you like: while a call is under way it does nothing, so slow reading means fewer updates, not a queue."""

    def __init__(self, app: App[Any], read: Callable[[], T], receive: Callable[[T | None, str], None]) -> None:
        self._app = app
        self._read = read
        self._receive = receive
        self._busy = False

    def tick(self) -> None:
        if not self._busy:
            self._busy = True
            self._app.run_worker(self._call, thread=True, exit_on_error=False, group="feed")

    def _call(self) -> None:
        value, trouble = None, ""
        try:
            value = self._read()
        except Exception as error:  # noqa: BLE001 - a run that cannot be read now may be readable in a second; the screen says so
            trouble = words(error)
        self._app.call_later(self._deliver, value, trouble)

    def _deliver(self, value: T | None, trouble: str) -> None:
        self._busy = False
        if self._app.screen_stack:
            with contextlib.suppress(NoMatches):  # the screen is being taken down: its parts are gone, its loop is not
                self._receive(value, trouble)
