"""Calls that end in time, whatever they wait for: a service that answers byte by byte resets every timeout of a socket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRuns  # another class than the built-in one before Python 3.11
from typing import TypeVar

Answered = TypeVar("Answered")


class TimedCalls:
    """Makes each call in a thread of its own. `most`: so many may be left without an answer; then no other is made."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._unanswered: list[threading.Thread] = []

    def __call__(self, work: Callable[[], Answered], within_s: float) -> Answered:
        """Returns or raises what `work` does. Raises TimeoutError where that takes longer, or where nothing may be called any more."""
        self._unanswered = [thread for thread in self._unanswered if thread.is_alive()]
        if len(self._unanswered) >= self._most:
            raise TimeoutError
        answer: Future[Answered] = Future()

        def ask() -> None:
            try:
                answer.set_result(work())
            except Exception as error:  # noqa: BLE001 - raised where it was asked for
                answer.set_exception(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        self._unanswered.append(thread)
        try:
            return answer.result(within_s)
        except StillRuns:
            raise TimeoutError from None
