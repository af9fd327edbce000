"""One outlet gets the newest readings in its own time; what it raises is one gap, and it is left alone for a while after it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from reading_samples import reading
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.outlets.outlet import NotDelivered, Outlet, RunReading
from rn50_advisor.advisor.outlets.outlet_thread import FIRST_PAUSE_S, OutletThread, describe_failure
from waiting import wait_for

ENOUGH_S = 60.0


class Told(Outlet):
    """Keeps what it gets; raises `failures` first."""

    name, place = "metrics.test", "http://host"

    def __init__(self, *failures: Exception, opening: Exception | None = None) -> None:
        self.got: list[RunReading] = []
        self.tries = self.opened = 0
        self.closed = False
        self._failures = list(failures)
        self._opening = opening

    def open(self, run: Path) -> None:
        self.opened += 1
        if self._opening is not None:
            raise self._opening

    def deliver(self, reading: RunReading) -> None:
        self.tries += 1
        if self._failures:
            raise self._failures.pop(0)
        self.got.append(reading)

    def close(self) -> None:
        self.closed = True


def started(outlet: Outlet, gaps: list[ProbeGap], clock: list[float]) -> OutletThread:
    thread = OutletThread(outlet, Path("run"), gaps.append, clock=lambda: clock[0])
    thread.start()
    return thread


def test_an_outlet_gets_each_reading_that_it_has_time_for_and_the_last_one() -> None:
    outlet, gaps = Told(), list[ProbeGap]()
    thread = started(outlet, gaps, [0.0])
    thread.offer(reading(run="1"))
    wait_for(lambda: outlet.got, "the first reading")
    thread.end(reading(run="2", is_last=True))
    thread.finish(ENOUGH_S)
    assert [each.run for each in outlet.got] == ["1", "2"] and outlet.closed and not gaps


def test_a_slow_outlet_gets_the_newest_reading_and_never_those_between() -> None:
    let_go, busy = threading.Event(), threading.Event()

    class Slow(Told):
        def deliver(self, reading: RunReading) -> None:
            busy.set()
            let_go.wait(ENOUGH_S)
            super().deliver(reading)

    outlet, gaps = Slow(), list[ProbeGap]()
    thread = started(outlet, gaps, [0.0])
    thread.offer(reading(run="0"))
    assert busy.wait(ENOUGH_S)
    for number in range(1, 100):
        thread.offer(reading(run=str(number)))
    thread.end(reading(run="last", is_last=True))
    let_go.set()
    thread.finish(ENOUGH_S)
    assert [each.run for each in outlet.got] == ["0", "last"] and not gaps


def test_an_outlet_that_hangs_is_not_waited_for_longer_than_allowed() -> None:
    let_go = threading.Event()

    class Hangs(Told):
        def deliver(self, reading: RunReading) -> None:
            let_go.wait(ENOUGH_S)

    gaps = list[ProbeGap]()
    thread = started(Hangs(), gaps, [0.0])
    thread.end(reading(is_last=True))
    thread.finish(0.0)
    let_go.set()
    (gap,) = gaps
    assert gap.reason.startswith("http://host: no answer in time")


def test_after_a_failure_readings_are_skipped_for_a_while_and_the_report_has_one_line() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    outlet, gaps, clock = Told(refused, refused), list[ProbeGap](), [0.0]
    thread = started(outlet, gaps, clock)
    thread.offer(reading(run="1"))
    wait_for(lambda: gaps, "the gap")
    assert (gaps[0].metric, gaps[0].scope) == ("metrics.test", "job")
    assert gaps[0].reason == "http://host: Connection refused"
    thread.offer(reading(run="2"))
    wait_for(lambda: thread._newest is None, "the second reading")
    clock[0] = FIRST_PAUSE_S
    thread.offer(reading(run="3"))
    wait_for(lambda: outlet.tries == 2, "the second attempt")
    thread.end(reading(run="last", is_last=True))  # although it pauses
    thread.finish(ENOUGH_S)
    assert [each.run for each in outlet.got] == ["last"] and outlet.closed
    assert [gap.reason for gap in gaps[1:]] == ["http://host: Connection refused (failed 2 times)"]


def test_an_outlet_that_cannot_be_opened_is_opened_again_later() -> None:
    outlet, gaps = Told(opening=OSError(errno.EADDRINUSE, "Address already in use")), list[ProbeGap]()
    thread = started(outlet, gaps, [0.0])
    wait_for(lambda: gaps, "the gap")
    outlet._opening = None
    thread.end(reading(run="last", is_last=True))
    thread.finish(ENOUGH_S)
    assert outlet.opened == 2 and [each.run for each in outlet.got] == ["last"]
    assert [gap.reason for gap in gaps] == [
        "http://host: Address already in use",
        "http://host: Address already in use",
    ]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotDelivered("HTTP 403\n Forbidden"), "HTTP 403 Forbidden"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (RuntimeError("http://user:password@host"), "RuntimeError"),  # not our words: they may quote the address
        (NotDelivered("x" * 1000), "x" * 200),
    ],
)
def test_a_failure_is_said_in_a_few_words_that_quote_no_address(error: Exception, words: str) -> None:
    assert describe_failure(error) == words
