"""Reading in a worker thread."""

from __future__ import annotations

import threading

import pytest
from textual.app import App

import report_samples as samples
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.tui.output_log import OutputLog
from rn50_advisor.advisor.tui.polling import Poller, words
from tui_doubles import Lines, Reports, until


async def test_slow_reading_means_fewer_readings_not_a_queue():
    gate = threading.Event()

    class Slow(Lines):
        def lines_since(self, n):
            news = super().lines_since(n)
            gate.wait(60)
            return news

    output = Slow("a")
    try:
        app = AdvisorApp(Reports(samples.running()), output=output)
        async with app.run_test(size=(140, 45)) as pilot:
            feed = Poller(app, lambda: output.lines_since(0), lambda news, trouble: None)
            await until(pilot, lambda: output.reads == 1)
            for _ in range(100):
                feed.tick()
                await pilot.pause()
            assert output.reads == 2
            gate.set()
            await until(pilot, lambda: app.query_one(OutputLog).total == 1)
    finally:
        gate.set()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotARun("it is locked", "wait a moment"), "it is locked → wait a moment"),
        (NotARun("it is locked"), "it is locked"),
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
    ],
)
def test_an_error_is_one_line(error: Exception, said: str) -> None:
    assert words(error) == said


async def test_what_was_read_or_why_not_reaches_the_screen_and_the_next_call_may_come():
    steps = [lambda: 1, lambda: 1 // 0, lambda: None]
    received: list[tuple[int | None, str]] = []

    def read() -> int | None:
        return steps.pop(0)()

    def receive(value: int | None, trouble: str) -> None:
        received.append((value, trouble))

    app: App[None] = App()
    async with app.run_test() as pilot:
        feed = Poller(app, read, receive)
        for n in range(3):
            feed.tick()
            await until(pilot, lambda n=n: len(received) == n + 1)
    assert received == [(1, ""), (None, "ZeroDivisionError: integer division or modulo by zero"), (None, "")]
