"""Hands readings to one outlet in a thread of its own: only the newest waits, and a failure is retried after a pause and reported once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.outlets.outlet import Outlet, RunReading

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
_REASON_CHARACTERS_MAX = 200
_HINT = "the job does not wait for it"


class OutletThread:
    """`report` gets the one gap of this outlet: after its first failure, and at the end with how often it failed."""

    def __init__(
        self,
        outlet: Outlet,
        run: Path,
        report: Callable[[ProbeGap], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outlet = outlet
        self._run = run
        self._report = report
        self._clock = clock
        self._news = threading.Condition()
        self._newest: RunReading | None = None
        self._is_open = self._ending = False
        self._failures = 0
        self._why = ""
        self._pause_s = FIRST_PAUSE_S
        self._quiet_until_s = 0.0
        self._thread = threading.Thread(target=self._serve, name=f"rn50-{outlet.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, reading: RunReading) -> None:
        """Replaces a reading that still waits."""
        with self._news:
            self._newest = reading
            self._news.notify()

    def end(self, last: RunReading | None) -> None:
        """The thread delivers this one, closes the outlet and ends."""
        with self._news:
            self._newest, self._ending = last, True
            self._news.notify()

    def finish(self, within_s: float) -> None:
        """Waits for that, and reports how often the outlet failed."""
        self._thread.join(max(0.0, within_s))
        if self._thread.is_alive():
            self._failures += 1
            self._why = "no answer in time"
        if self._failures:
            self._report(self._gap())

    def _serve(self) -> None:
        self._attempt(None)
        ending = False
        while not ending:
            with self._news:
                while self._newest is None and not self._ending:
                    self._news.wait()
                reading, self._newest, ending = self._newest, None, self._ending
            if reading is not None and (ending or self._clock() >= self._quiet_until_s):
                self._attempt(reading)
        try:
            self._outlet.close()
        except Exception as error:  # noqa: BLE001 - the wall of this thread
            self._failed(error)

    def _attempt(self, reading: RunReading | None) -> None:
        """Opens the outlet if it is not open, and delivers."""
        try:
            if not self._is_open:
                self._outlet.open(self._run)
                self._is_open = True
            if reading is not None:
                self._outlet.deliver(reading)
        except Exception as error:  # noqa: BLE001 - the wall of this thread: what fails here is a line of the report
            self._failed(error)
        else:
            self._pause_s = FIRST_PAUSE_S

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._why = describe_failure(error)
        self._quiet_until_s = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if self._failures == 1:
            self._report(self._gap())

    def _gap(self) -> ProbeGap:
        often = f" (failed {self._failures} times)" if self._failures > 1 else ""
        return ProbeGap(self._outlet.name, "job", f"{self._outlet.place}: {self._why}{often}", _HINT)


def describe_failure(error: Exception) -> str:
    """A few words. An exception that is not ours may quote an address with its credentials: only its kind is named."""
    if isinstance(error, AdvisorError):
        words = error.message
    elif isinstance(error, OSError) and error.strerror:
        words = error.strerror
    else:
        words = type(error).__name__
    return " ".join(words.split())[:_REASON_CHARACTERS_MAX]
