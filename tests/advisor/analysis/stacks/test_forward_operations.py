"""From counted operations to what one takes, and from a profile to the line of the forward pass."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event

SCRIPT, MODEL, LIBRARY = "/job/train.py", "/job/model.py", "/env/site-packages"
Call = tuple[str, str, int]
TRAIN = ("train", SCRIPT, 10)
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1794)
NET = ("Net.forward", MODEL, 33)
BACKWARD = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)


def looks(count: int, *calls: Call) -> dict[str, Any]:
    """Stack samples with these calls, outermost first."""
    frames = [{"function": name, "file": file, "line": at} for name, file, at in reversed(calls)]
    user = next(frame for frame in frames if frame["file"].startswith("/job/"))
    return {"count": count, "frames": frames, "user": {**user, "text": ""}}


def seen(*rows: dict[str, Any], operations: dict[str, int] | None = None) -> Analysis:
    profile = {"outside_share": 0.0, "looks": sum(row["count"] for row in rows), "stacks": list(rows)}
    event = Event(FIRST_STEP_NS, "profile", 100, 0, profile)
    facts = {} if operations is None else {"operations": operations}
    return analyse(recording({0: plan(60, backward=60)}, events=(event,), facts={100: facts}))


def test_operations_are_those_of_a_counted_step() -> None:
    found = seen(operations={"steps": 40, "nodes": 40 * 300, "low_ns": 18_500})
    assert found.value("step.operations", 0) == 300
    assert found.value("step.operation_s", 0) == pytest.approx(18.5e-6)


@pytest.mark.parametrize("operations", [None, {"steps": 9, "nodes": 2700, "low_ns": 18_500}])
def test_a_few_steps_are_no_measurement(operations: dict[str, int] | None) -> None:
    found = seen(operations=operations)
    assert not found.by_rank("step.operations") and "too few steps" in found.missing["step.operation_s"]


def test_the_line_is_the_innermost_that_has_most_of_the_forward_pass() -> None:
    cell = [looks(30, TRAIN, MODULE, NET, MODULE, ("Cell.forward", MODEL, line)) for line in (20, 21, 22)]
    head = looks(10, TRAIN, MODULE, ("Net.forward", MODEL, 35))
    (line,) = seen(*cell, head, looks(300, TRAIN, BACKWARD)).forward_lines
    assert (line.file, line.line, line.function, line.samples) == (MODEL, 33, "Net.forward", 90)
    assert line.share == 0.9


def test_a_model_of_a_library_is_named_by_the_line_that_calls_it() -> None:
    rows = [
        looks(50, TRAIN, MODULE, ("ResNet.forward", f"{LIBRARY}/torchvision/models/resnet.py", at)) for at in (1, 2)
    ]
    assert [(line.file, line.line) for line in seen(*rows).forward_lines] == [(SCRIPT, 10)]


def test_a_profile_without_a_forward_pass_names_no_line() -> None:
    assert seen(looks(100, TRAIN, BACKWARD)).forward_lines == ()
