"""Debugging aids are counted as they stand, from the step on by which a short profile is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stub_training import Training

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

from rn50_advisor.probes.rank.facts import process_facts  # noqa: E402


def looked(*, by_us: bool = False) -> dict[str, int]:
    values: dict[str, Any] = {}
    process_facts.look_for_aids(torch, values, profiled_by_us=by_us)
    return dict(values["debugging"]["on"])


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These tests may themselves be traced, for coverage."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    monkeypatch.setattr(process_facts, "_monitored", lambda: False)
    for name in process_facts._AID_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    sys.settrace(trace)
    sys.setprofile(profile)


def test_a_plain_job_has_none() -> None:
    assert looked() == {}


def test_anomaly_detection_is_seen() -> None:
    with torch.autograd.set_detect_anomaly(True):
        assert looked() == {"anomaly detection": 1}


def test_a_profiler_is_seen_unless_it_is_ours() -> None:
    with torch.autograd.profiler.profile():
        assert looked() == {"profiler": 1}
        assert looked(by_us=True) == {}


def test_a_tracer_of_python_is_seen() -> None:
    sys.settrace(lambda *given: None)
    try:
        assert looked() == {"tracer": 1}
    finally:
        sys.settrace(None)


@pytest.mark.parametrize(
    ("name", "value", "on"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", True),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO", False),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "yes", True),
    ],
)
def test_variables_that_slow_every_step(monkeypatch: pytest.MonkeyPatch, name: str, value: str, on: bool) -> None:
    monkeypatch.setenv(name, value)
    assert looked() == ({name: 1} if on else {})


def test_one_backward_is_asked_and_its_step_is_not_noted_on_a_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path)
    recorder, account = training.recorder, training.account
    recorder.torch = torch
    monkeypatch.setattr(recorder.precision, "refresh", lambda step: None)
    for account.step in (process_facts.AIDS_FROM_STEP - 1, process_facts.AIDS_FROM_STEP):
        recorder._refresh_facts()
        assert training.noted() == (account.step < process_facts.AIDS_FROM_STEP)
    for _ in range(2):
        with torch.autograd.set_detect_anomaly(True):
            recorder.backward_begin()
        account.backward_end()
    assert recorder.facts.values["debugging"] == {"looks": 1, "on": {"anomaly detection": 1}}
    assert training.noted()


def test_looks_are_counted() -> None:
    values: dict[str, Any] = {}
    for on in (False, True, True):
        with torch.autograd.set_detect_anomaly(on):
            process_facts.look_for_aids(torch, values, profiled_by_us=False)
    assert values["debugging"] == {"looks": 3, "on": {"anomaly detection": 2}}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_a_tool_that_monitors_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    monitoring.use_tool_id(0, "a debugger")
    try:
        assert not process_facts._monitored() or any(monitoring.get_tool(tool) for tool in (1, 2))
        monitoring.set_events(0, monitoring.events.LINE)
        assert process_facts._monitored()
    finally:
        monitoring.set_events(0, 0)
        monitoring.free_tool_id(0)
