"""The agent's handle on the process of the outlets: no outlet, no process; whatever that process does, the agent goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run import outlet_companion
from rn50_advisor.advisor.run.outlet_companion import OutletCompanion
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.run_options import RunOptions
from waiting import wait_for

# says one gap and its cost, and ends a moment after it is asked to
OBEYS = """
import json, os, sys
with os.fdopen(int(sys.argv[1])) as lines:
    plan = json.loads(lines.readline())["plan"]
    for answer in (
        {"event": "gap", "metric": "metrics.otlp", "reason": plan["options"]["otlp"], "hint": "h"},
        {"event": "cost", "cpu_s": 1.5}, {"event": "cost", "cpu_s": "much"}, {"event": "news"},
    ):
        os.write(int(sys.argv[2]), json.dumps(answer).encode() + b"\\n")
    lines.readline()
"""
HANGS = "import time; time.sleep(300)"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts the companion with a process of this Python."""
    found: list[OutletCompanion] = []

    def start(code: str, gaps: list[ProbeGap]) -> OutletCompanion:
        talk = outlet_companion.ChildTalk
        monkeypatch.setattr(outlet_companion, "ChildTalk", lambda _, **first: talk("prepared_child", code, **first))
        companion = OutletCompanion(plan(tmp_path, otlp="http://host"), gaps.append)
        companion.start()
        found.append(companion)
        return companion

    yield start
    for companion in found:
        if companion._talk is not None and companion._talk.status is None:
            companion._talk.kill()
            os.waitpid(companion._talk.pid, 0)


def plan(folder: Path, **options: Any) -> RecordingPlan:
    return RecordingPlan(("train",), folder, "", RunOptions(**options), None, time.perf_counter_ns(), time.time(), 1)


def test_without_an_outlet_there_is_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_companion, "ChildTalk", None)  # a call would fail
    gaps: list[ProbeGap] = []
    unrecorded = replace(plan(tmp_path, otlp="http://host"), run_folder=None)
    for each in (plan(tmp_path), unrecorded):
        companion = OutletCompanion(each, gaps.append)
        companion.start()
        companion.look()
        companion.finish()
        assert not companion.started and not gaps


def test_what_the_process_says_becomes_gaps_and_cost_and_its_end_is_awaited(started: Any) -> None:
    gaps: list[ProbeGap] = []
    companion = started(OBEYS, gaps)
    wait_for(lambda: companion.look() or companion.cpu_s, "its cost")
    assert gaps == [ProbeGap("metrics.otlp", "job", "http://host", "h")] and companion.cpu_s == 1.5
    companion.finish()
    assert companion._talk.status == 0 and len(gaps) == 1


def test_a_process_that_does_not_end_is_left_behind(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_companion, "ENDS_WITHIN_S", 0.05)
    gaps: list[ProbeGap] = []
    companion = started(HANGS, gaps)
    companion.finish()
    assert [gap.metric for gap in gaps] == ["outlets"] and "not out" in gaps[0].reason


def test_a_process_that_was_stopped_ends_by_itself_and_keeps_no_port(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet_companion, "ENDS_WITHIN_S", 0.05)
    gaps: list[ProbeGap] = []
    companion = started(OBEYS, gaps)
    wait_for(lambda: companion.look() or companion.cpu_s, "its cost")
    os.kill(companion._talk.pid, signal.SIGSTOP)
    os.waitpid(companion._talk.pid, os.WUNTRACED)
    companion.finish()
    assert "not out" in gaps[-1].reason
    wait_for(lambda: companion._talk.reap() is not None, "its end")


def test_a_process_that_is_killed_is_reported_once(started: Any) -> None:
    gaps: list[ProbeGap] = []
    companion = started(HANGS, gaps)
    os.kill(companion._talk.pid, signal.SIGKILL)
    wait_for(lambda: companion.look() or gaps, "the gap")
    companion.look()
    companion.finish()
    assert [gap.reason for gap in gaps] == ["its process was killed by SIGKILL"]


def test_where_no_process_can_be_started_the_recording_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(outlet_companion, "ChildTalk", fails)
    gaps: list[ProbeGap] = []
    companion = OutletCompanion(plan(tmp_path, otlp="http://host"), gaps.append)
    companion.start()
    companion.look()
    companion.finish()
    assert not companion.started and "Resource temporarily unavailable" in gaps[0].reason
