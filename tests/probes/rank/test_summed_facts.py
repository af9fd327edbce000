"""Facts that grow over the run are in each writing of the facts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.summed_facts import device_of, ending_exception, note_exception, sum_up


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    made = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    made.own_account()
    return made


def test_the_number_of_dropped_steps_is_in_the_facts(recorder: Any) -> None:
    recorder.gpu = SimpleNamespace(dropped=0)
    sum_up(recorder)
    assert "gpu_steps_dropped" not in recorder.facts.values
    recorder.gpu.dropped = 3
    sum_up(recorder)
    assert recorder.facts.values["gpu_steps_dropped"] == 3


def test_batches_of_evaluations_and_nodes_of_steps_are_in_the_facts(recorder: Any) -> None:
    sum_up(recorder)
    assert recorder.facts.values["evaluation_batches"] == [0, 0] and "operations" not in recorder.facts.values
    evaluated, nodes = recorder.account.evaluated_batches, recorder.account.nodes
    evaluated.came(5)
    evaluated.ended(9)
    nodes.count(12, computed=True)
    nodes.end_step(3, 2400)
    sum_up(recorder)
    assert recorder.facts.values["evaluation_batches"] == [1, 1]
    assert recorder.facts.values["operations"] == {"steps": 1, "nodes": 12, "low_ns": 200, "by_step": [[3, 12]]}


def test_the_exception_that_ends_the_process_is_recorded_with_its_phase(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_exception(recorder)
    assert "exception" not in recorder.facts.values
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)
    monkeypatch.setattr(sys, "last_value", ValueError("no such size"), raising=False)
    note_exception(recorder)
    assert "no such size" in str(recorder.facts.values["exception"])
    assert "held_at_end" not in recorder.facts.values, "memory is not what it lacked"


def test_the_device_is_written_as_tensors_write_it() -> None:
    assert device_of({}) == "" and device_of({"cuda": {"device": 3}}) == "cuda:3"  # type: ignore[typeddict-item]


def test_a_process_that_goes_on_ended_with_what_left_the_recorded_part_and_not_with_an_earlier_failure(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError("of an earlier cell"), raising=False)
    assert ending_exception(recorder) is sys.last_value
    recorder.retired = True
    note_exception(recorder)
    assert "exception" not in recorder.facts.values and ending_exception(recorder) is None
    recorder.ending = KeyError("theirs")
    note_exception(recorder)
    assert "theirs" in str(recorder.facts.values["exception"]) and ending_exception(recorder) is recorder.ending
