"""Statements of a set-up are made as a user would make them, and taken back in reverse; all of them or none."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from rn50_advisor.probes.rank.trials.setup_statements import SetupStatements, take_back
from rn50_advisor.probes.rank.trials.trial_request import Refused

torch = pytest.importorskip("torch")


def setup(*statements: Any) -> SetupStatements:
    return SetupStatements(torch, {"kind": "setup", "statements": list(statements)})


def call(name: str, *positional: Any, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "positional": list(positional), "arguments": arguments}


def state() -> tuple[Any, ...]:
    return (
        torch.get_num_threads(),
        gc.get_threshold(),
        torch.get_float32_matmul_precision(),
        torch.is_anomaly_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        os.sched_getaffinity(0),
    )


@pytest.mark.parametrize(
    ("statement", "place", "value"),
    [
        (call("torch.set_num_threads", 3), 0, 3),
        (call("gc.set_threshold", 90_000, 10, 10), 1, (90_000, 10, 10)),
        (call("torch.set_float32_matmul_precision", "high"), 2, "high"),
        (call("torch.autograd.set_detect_anomaly", True), 3, True),
        ({"assign": "torch.backends.cudnn.benchmark", "value": True}, 4, True),
        (call("os.sched_setaffinity", 0, [min(os.sched_getaffinity(0))]), 6, {min(os.sched_getaffinity(0))}),
    ],
    ids=lambda value: value.get("call", value.get("assign")) if isinstance(value, dict) else "",
)
def test_a_statement_is_made_and_taken_back(statement: Any, place: int, value: Any) -> None:
    before = state()
    undo = setup(statement).make(undone=True)
    try:
        assert state()[place] == value != before[place] or before[place] == value
    finally:
        take_back(undo)
    assert state() == before and not undo


def test_a_setting_that_somebody_else_has_changed_since_is_told() -> None:
    statements = setup(call("torch.autograd.set_detect_anomaly", True), call("gc.set_threshold", 90_000, 10, 10))
    undo = statements.make(undone=True)
    try:
        statements.verify()
        torch.autograd.set_detect_anomaly(False)
        with pytest.raises(Refused, match=r"sets it again itself, after torch\.autograd\.set_detect_anomaly"):
            statements.verify()
    finally:
        take_back(undo)


def test_an_attribute_that_somebody_else_has_set_since_is_told() -> None:
    statements = setup({"assign": "torch.backends.cudnn.benchmark", "value": True})
    undo = statements.make(undone=True)
    try:
        statements.verify()
        torch.backends.cudnn.benchmark = False
        with pytest.raises(Refused, match=r"after torch\.backends\.cudnn\.benchmark"):
            statements.verify()
    finally:
        take_back(undo)


def test_frozen_objects_are_thawed_unless_the_job_has_some_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("all"))
    monkeypatch.setattr(gc, "unfreeze", frozen.clear)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    frozen_then = setup(call("gc.collect"), call("gc.freeze"))
    undo = frozen_then.make(undone=True)
    assert frozen == ["all"]
    with pytest.raises(Refused, match="frozen objects of its own"):
        frozen_then.make(undone=True)
    take_back(undo)
    assert frozen == []


def test_a_set_up_that_fails_is_taken_back_as_a_whole() -> None:
    before = state()
    failing = setup(
        call("torch.set_float32_matmul_precision", "high"),
        {"assign": "torch.backends.cudnn.deterministic", "value": not torch.backends.cudnn.deterministic},
        {"assign": "torch.backends.cudnn.no_such_switch", "value": True},
    )
    with pytest.raises(Refused, match="no_such_switch"):
        failing.make(undone=True)
    assert state() == before


def test_what_one_was_put_over_is_put_back_first() -> None:
    before = state()
    undo = setup(call("torch.set_num_threads", 3), call("torch.set_num_threads", 5)).make(undone=True)
    assert torch.get_num_threads() == 5
    take_back(undo)
    assert state() == before


@pytest.mark.parametrize(
    "statement",
    [
        call("os.system", "true"),
        call("os.sched_setaffinity", 1, [0]),
        {"assign": "torch.nn.Module", "value": 1},
        {"assign": "os.environ", "value": 1},
        call("torch.no_such_function"),
    ],
    ids=str,
)
def test_nothing_else_is_called_or_set(statement: Any) -> None:
    with pytest.raises(Refused):
        setup(statement).make()


def test_what_cannot_be_taken_back_is_made_by_a_restart_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_default_dtype()
    statement = call("torch.set_default_dtype", {"source": "torch.float32"})
    with pytest.raises(Refused, match="only by a restart"):
        setup(statement).make(undone=True)
    assert torch.get_default_dtype() is before
    assert setup(statement).make() == [] and setup(statement).early
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(Refused, match="other compute threads"):
        setup(call("torch.set_flush_denormal", True)).make(undone=True)
