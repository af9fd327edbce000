"""The process beside the job: reads while the run goes and once more at its end, whatever fails, within its share of a core."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reading_samples import reading
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.outlets import outlet_process
from rn50_advisor.advisor.outlets.outlet import Outlet, RunReading
from rn50_advisor.advisor.outlets.outlet_process import FIRST_READING_S, AgentLine, read_run, serve
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.run_options import RunOptions
from waiting import wait_for
from written_runs import written_run


class Kept(Outlet):
    name, place = "metrics.test", "here"

    def __init__(self) -> None:
        self.got: list[RunReading] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def deliver(self, reading: RunReading) -> None:
        self.got.append(reading)


class Rests(threading.Event):
    """Is over after `readings` rests, and keeps how long each was to be; an outlet gets its reading meanwhile."""

    def __init__(self, readings: int, outlet: Kept) -> None:
        super().__init__()
        self.rests: list[float] = []
        self._readings, self._outlet = readings, outlet

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        wait_for(lambda: len(self._outlet.got) == len(self.rests), "the delivery")
        self.rests.append(timeout)
        return len(self.rests) > self._readings


@pytest.fixture
def heard() -> Any:
    """(the line of the process, what was said on it so far)."""
    answers, said = os.pipe()
    os.set_blocking(answers, False)

    def lines() -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(answers, 65536).splitlines()]
        except BlockingIOError:
            return []

    yield AgentLine(said), lines
    os.close(answers)
    os.close(said)


def plan(folder: Path, **options: Any) -> RecordingPlan:
    return RecordingPlan(("train",), folder, "", RunOptions(**options), None, time.perf_counter_ns(), time.time(), 1)


def test_an_outlet_gets_readings_while_the_run_goes_and_the_last_one(tmp_path: Path, heard: Any) -> None:
    outlet, (line, said) = Kept(), heard
    over = Rests(2, outlet)
    serve(plan(tmp_path, outlet_period_s=3.0), [outlet], over, line, read=lambda _: reading())
    assert [each.is_last for each in outlet.got] == [False, False, True]
    assert over.rests == [FIRST_READING_S, 3.0, 3.0]
    assert {each["event"] for each in said()} == {"cost"}


def test_readings_that_cost_much_come_rarely(tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outlet, (line, _), cpu_s = Kept(), heard, iter(range(10, 100, 2))
    monkeypatch.setattr(outlet_process.time, "process_time", lambda: float(next(cpu_s)))
    over = Rests(2, outlet)
    serve(plan(tmp_path, overhead_budget=0.02), [outlet], over, line, read=lambda _: reading())
    assert over.rests[2] == pytest.approx(4.0 / 0.02)  # two looks at the clock a reading, of two seconds each


def test_a_run_that_cannot_be_read_is_reported_once_and_read_again(tmp_path: Path, heard: Any) -> None:
    outlet, (line, said) = Kept(), heard
    answers = iter([NotARun("there is nothing yet"), NotARun("nor now"), reading(), RuntimeError("broken")])

    def read(_: RecordingPlan) -> RunReading:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    class Third(Rests):
        def wait(self, timeout: float | None = None) -> bool:
            self.rests.append(timeout or 0.0)
            return len(self.rests) > 3

    serve(plan(tmp_path), [outlet], Third(3, outlet), line, read=read)
    assert outlet.got[-1] == replace(reading(), is_last=True)  # the reading before, where there is no new one
    assert [each["reason"] for each in said() if each["event"] == "gap"] == [
        "no reading of the run for what leaves it: there is nothing yet"
    ]


def test_without_any_reading_it_ends_all_the_same(tmp_path: Path, heard: Any) -> None:
    def read(_: RecordingPlan) -> RunReading:
        raise NotARun("there is none")

    outlet, (line, said), over = Kept(), heard, threading.Event()
    over.set()
    serve(plan(tmp_path), [outlet], over, line, read=read)
    assert outlet.got == [] and outlet.is_closed and not [each for each in said() if each["event"] == "gap"]


def test_a_reading_is_the_report_of_the_run_by_the_thresholds_that_run_was_given(tmp_path: Path) -> None:
    run = written_run(tmp_path / "first", host="node0")
    (tmp_path / "rules.toml").write_text('disable = ["LOP004"]\n')
    told = read_run(plan(run, thresholds_file=str(tmp_path / "rules.toml")))
    assert (told.run, told.host, told.started_unix_s) == ("first", "node0", 1.7e9)
    assert told.report.step_time.steps == 100 and told.report.job.exit_code == 0
    usual = read_run(plan(run))
    assert {row.rule for row in usual.report.outcomes} - {row.rule for row in told.report.outcomes} == {"LOP004"}
