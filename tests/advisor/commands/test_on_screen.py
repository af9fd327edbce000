"""Signals that come before the screen is up reach the job behind it, and the job's own end is reported."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.commands import on_screen
from rn50_advisor.advisor.run.launch.job_end import JobEnd
from rn50_advisor.advisor.run.launch.screen_job import Supervised
from rn50_advisor.advisor.run.run_options import RunOptions


class Job:
    """Runs until it is asked to stop; `requests` has how."""

    job_pid = 1

    def __init__(self, output: Path, *, ends_after: int = 1) -> None:
        self.output = output
        self.ends_after = ends_after
        self.requests: list[str] = []
        self.waits = 0
        self.signals: dict[int, int] = {}  # sent to ourselves during this wait

    def wait(self, timeout_s: float) -> JobEnd:
        self.waits += 1
        if number := self.signals.pop(self.waits, 0):
            os.kill(os.getpid(), number)
        if len(self.requests) >= self.ends_after:
            return JobEnd(None, signal.SIGINT if self.requests[0] == "interrupt" else signal.SIGTERM)
        raise TimeoutError

    def interrupt(self) -> None:
        self.requests.append("interrupt")

    def terminate(self) -> None:
        self.requests.append("terminate")

    def running(self) -> bool:
        return not self.requests

    def notice(self) -> str:
        return ""


def run(job: Job, monkeypatch: pytest.MonkeyPatch, *, early: int = 0) -> JobEnd | None:
    def start(*_: Any, **__: Any) -> Job:
        if early:
            os.kill(os.getpid(), early)
        return job

    monkeypatch.setattr(Supervised, "start", start)
    monkeypatch.setattr(on_screen, "_show", lambda *_: pytest.fail("a screen was opened"))
    monkeypatch.setattr(on_screen, "BRIEF_S", 60.0)
    return on_screen.run_on_screen(
        ["train"], folder=job.output.parent, settings=RunOptions(), name="", diagnosis=lambda _: pytest.fail("judged")
    )


@pytest.mark.parametrize(("number", "asked"), [(signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminate")])
@pytest.mark.parametrize("when", ["before the job is known", "while it starts", "just after"])
def test_a_signal_before_the_screen_reaches_the_job(
    number: signal.Signals, asked: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)
    job = Job(tmp_path / "output.log")
    job.signals = {"while it starts": {1: number}, "just after": {3: number}}.get(when, {})
    end = run(job, monkeypatch, early=number if when == "before the job is known" else 0)
    assert job.requests == [asked] and end is not None and end.signal == number
    assert signal.getsignal(number) == before


def test_a_second_interrupt_reaches_the_job_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path / "output.log", ends_after=2)
    job.signals = {1: signal.SIGINT, 2: signal.SIGINT}
    end = run(job, monkeypatch)
    assert job.requests == ["interrupt", "interrupt"] and end is not None and end.signal == signal.SIGINT


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup` and shells in the background do
    try:
        job = Job(tmp_path / "output.log")
        job.signals = {1: signal.SIGINT, 2: signal.SIGTERM}
        run(job, monkeypatch)
        assert job.requests == ["terminate"]
    finally:
        signal.signal(signal.SIGINT, before)
