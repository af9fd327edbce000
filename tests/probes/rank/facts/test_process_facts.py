"""Settings that a script changes after its first backward pass are read whenever the facts are written."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.facts import process_facts
from rn50_advisor.probes.rank.facts.process_facts import Facts, call_site, note_compilations
from stub_training import Training

with contextlib.suppress(ImportError):  # tests that need it are marked
    import torch


@pytest.fixture
def facts(tmp_path, monkeypatch):
    torch = SimpleNamespace(threads=8, get_num_threads=lambda: torch.threads)
    monkeypatch.setitem(sys.modules, "torch", torch)
    made = Facts(str(tmp_path))
    made.active = True
    made.torch = torch
    made.read = lambda: json.loads((tmp_path / f"facts-{os.getpid()}.json").read_text())
    return made


def test_the_number_of_threads_is_that_of_now(facts):
    facts.write()
    assert facts.read()["threads"] == 8
    facts.torch.threads = 2
    facts.write()
    assert facts.read()["threads"] == 2


def group(size, initialized=True):
    return SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: initialized, get_world_size=lambda: size, size=lambda: size
    )


def test_how_many_have_joined_one_group_is_known_even_when_it_has_been_left(facts, monkeypatch):
    facts.write()
    assert "group_size" not in facts.read(), "this torch has no distributed at all"
    facts.torch.distributed = group(8, initialized=False)
    facts.write()
    assert "group_size" not in facts.read(), "whatever WORLD_SIZE says"
    monkeypatch.setitem(sys.modules, "horovod.torch", group(4))
    facts.write()
    assert facts.read()["group_size"] == 4
    facts.torch.distributed = group(8)
    facts.write()
    facts.torch.distributed = group(8, initialized=False)
    monkeypatch.delitem(sys.modules, "horovod.torch")
    facts.write()
    assert facts.read()["group_size"] == 8


def test_the_collectors_state_and_counts_are_those_of_now(facts):
    facts.write()
    before = facts.read()["gc"]
    gc.disable()
    try:
        gc.collect()
        facts.write()
    finally:
        gc.enable()
    after = facts.read()["gc"]
    assert before["enabled"] and not after["enabled"]
    assert after["collections"][-1] == before["collections"][-1] + 1


def test_nothing_is_read_in_a_process_that_is_no_rank(facts, tmp_path):
    facts.active = False
    facts.write()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_the_jobs_may_be_called_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__file__="/env/torch/__init__.py"))
    names: dict[str, object] = {"call_site": call_site}
    exec(compile("def inside(): return call_site()", "/env/torch/nn/layer.py", "exec"), names)
    exec(compile("\nfound = inside()", "/home/me/torch/train.py", "exec"), names)
    assert names["found"] == ("/home/me/torch/train.py", 2)


def compiled(at_us, *, name="loss_of", reason=None, **given):
    return SimpleNamespace(
        co_name=name,
        co_filename="train.py",
        co_firstlineno=6,
        entire_frame_compile_time_s=0.5,
        recompile_reason=reason,
        **{"start_time_us": at_us, **given},
    )


def test_compilations_are_noted_once_by_the_monotonic_clock(monkeypatch):
    kept = [
        compiled(1_000_000),
        compiled(3_000_000, reason="0/0: n == 1    # loss * n\nUser stack trace:\n  ..."),
        compiled(3_000_001, name=None),
    ]
    utils = SimpleNamespace(get_compilation_metrics=lambda: kept)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    values = {}
    note_compilations(values, now_ns=50_000_000_000, wall_us=4_000_000)
    kept.append(compiled(None, start_time=5.0))  # as torch 2.5 reports it
    note_compilations(values, now_ns=52_000_000_500, wall_us=6_000_000)
    note_compilations(
        values, now_ns=53_000_000_000, wall_us=9_000_000
    )  # the wall clock was set: nothing is noted twice
    compilations = values["compilations"]
    assert [(each["began_ns"], each["reason"]) for each in compilations] == [
        (47_000_000_000, ""),
        (49_000_000_000, "0/0: n == 1"),
        (51_000_000_500, ""),
    ]
    assert (
        compilations[0]["file"],
        compilations[0]["line"],
        compilations[0]["function"],
        compilations[0]["took_ns"],
    ) == (
        "train.py",
        6,
        "loss_of",
        500_000_000,
    )


def test_compilations_have_a_bound_and_cost_nothing_without_dynamo(monkeypatch):
    values = {}
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    note_compilations(values, now_ns=1, wall_us=1)
    assert values == {}
    made = [compiled(10_000 * (number + 1)) for number in range(200)]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(get_compilation_metrics=lambda: made))
    note_compilations(values, now_ns=10_000_000_000, wall_us=10_000_000)
    assert len(values["compilations"]) == 64


def aids_found(*, by_us: bool = False) -> dict[str, int]:
    values: dict[str, Any] = {}
    process_facts.count_aids(torch, values, profiled_by_us=by_us)
    return dict(values["debugging"]["on"])


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switches tracing off: these tests may run under coverage."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    monkeypatch.setattr(process_facts, "_monitored", lambda: False)
    for name in process_facts._AID_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    sys.settrace(trace)
    sys.setprofile(profile)


@pytest.mark.torch
def test_a_plain_job_has_none() -> None:
    assert aids_found() == {}


@pytest.mark.torch
def test_anomaly_detection_is_seen() -> None:
    with torch.autograd.set_detect_anomaly(True):
        assert aids_found() == {"anomaly detection": 1}


@pytest.mark.torch
def test_a_profiler_is_seen_unless_it_is_the_recorders() -> None:
    with torch.autograd.profiler.profile():
        assert aids_found() == {"profiler": 1}
        assert aids_found(by_us=True) == {}


@pytest.mark.torch
def test_a_tracer_of_python_is_seen() -> None:
    sys.settrace(lambda *given: None)
    try:
        assert aids_found() == {"tracer": 1}
    finally:
        sys.settrace(None)


@pytest.mark.torch
def test_a_trace_of_allocations_is_seen() -> None:
    tracemalloc.start()
    try:
        assert aids_found() == {"tracemalloc": 1}
    finally:
        tracemalloc.stop()
    assert aids_found() == {}


@pytest.mark.torch
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
    assert aids_found() == ({name: 1} if on else {})


@pytest.mark.torch
def test_one_backward_is_asked_and_its_step_is_not_buffered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(tmp_path)
    recorder, account = training.recorder, training.account
    recorder.torch = torch
    monkeypatch.setattr(recorder.precision, "refresh", lambda step: None)
    monkeypatch.setattr(recorder.passes.nodes, "turn", lambda step: False)
    monkeypatch.setattr(recorder.passes.unused, "turn", lambda step: False)
    monkeypatch.setattr(recorder.passes.repeated, "turn", lambda step: False)
    for account.step in (process_facts.AIDS_FROM_STEP - 1, process_facts.AIDS_FROM_STEP):
        recorder.schedule.refresh_facts()
        assert training.buffered() == (account.step < process_facts.AIDS_FROM_STEP)
    for _ in range(2):
        with torch.autograd.set_detect_anomaly(True):
            recorder.passes.backward_begin()
        account.backward_end()
    assert recorder.facts.values["debugging"] == {"looks": 1, "on": {"anomaly detection": 1}}
    assert training.buffered()


@pytest.mark.torch
@pytest.mark.parametrize("in_backward", [False, True])
def test_a_tracer_that_is_off_in_the_backward_pass_is_seen_at_the_next_update(
    in_backward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's AdvancedProfiler ends its profile of the whole update when a part of it begins."""
    training = Training(tmp_path)
    recorder, account = training.recorder, training.account
    recorder.torch = torch
    for watch in (recorder.passes.nodes, recorder.passes.unused, recorder.passes.repeated):
        monkeypatch.setattr(watch, "turn", lambda step: False)
    monkeypatch.setattr(recorder.precision, "refresh", lambda step: None)
    account.step = process_facts.AIDS_FROM_STEP
    recorder.schedule.refresh_facts()
    monkeypatch.setattr(process_facts, "_traces", lambda: in_backward)
    recorder.passes.backward_begin()
    account.backward_end()
    monkeypatch.setattr(process_facts, "_traces", lambda: True)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    for _ in range(2):
        recorder.passes.optimizer_begin(optimizer)
        account.optimizer_end(id(optimizer))
    assert recorder.facts.values["debugging"] == {"looks": 1, "on": {"tracer": 1}}


@pytest.mark.torch
def test_checks_are_counted() -> None:
    values: dict[str, Any] = {}
    for on in (False, True, True):
        with torch.autograd.set_detect_anomaly(on):
            process_facts.count_aids(torch, values, profiled_by_us=False)
    assert values["debugging"] == {"looks": 3, "on": {"anomaly detection": 2}}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
@pytest.mark.torch
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
