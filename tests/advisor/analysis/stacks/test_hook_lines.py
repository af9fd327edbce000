"""From a profile and the source of hooks to the time that those which only watch take in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Source

LIBRARY = "/env/site-packages"
TORCH = f"{LIBRARY}/torch"
MODULE = ("Module._call_impl", f"{TORCH}/nn/modules/module.py", 1790)
INNER = ("Module._call_impl.<locals>.inner", f"{TORCH}/nn/modules/module.py", 1830)
LINEAR = ("Linear.forward", f"{TORCH}/nn/modules/linear.py", 130)
TENSOR = ("Tensor.backward", f"{TORCH}/_tensor.py", 640)
ENGINE = ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 1100)
HOOKS = ("BackwardHook.hook", f"{TORCH}/utils/hooks.py", 200)
FUNCTION = ("BackwardCFunction.apply", f"{TORCH}/autograd/function.py", 300)
ADAM = ("Adam.step", f"{TORCH}/optim/adam.py", 100)
NUMPY = ("histogram", f"{LIBRARY}/numpy/lib/histograms.py", 780)
WATCH, CLIP, PRUNE, FUSED = 2, 6, 10, 14
CODE = """\
def watch(grad):
    count = torch.histc(grad, bins=64)
    log.append(count)

def clip(grad):
    return grad.clamp(-1, 1)

def prune(parameter):
    mask = parameter.abs() > 1e-3
    parameter.grad.mul_(mask)
    count = mask.sum()

def fused(parameter):
    optimizers[parameter].step()
    count = parameter.norm()
"""
SOURCES = (Source("/job/hooks.py", "", CODE),)

Call = tuple[str, str, int]


def looks(count: int, line: int, *calls: Call) -> Any:
    """Samples at a line of the training function and its calls, outermost first."""
    rows = [*reversed(calls), ("train", "/job/train.py", line)]
    frames = [{"function": name, "file": file, "line": at} for name, file, at in rows]
    return {"count": count, "frames": frames, "user": {**next(f for f in frames if "/job/" in f["file"]), "text": ""}}


def hook(line: int, name: str = "watch") -> Call:
    return (name, "/job/hooks.py", line)


def seen(row: Any, *, sources: Sequence[Source] = SOURCES) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    rest = looks(400 - row["count"], 26, TENSOR)
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": [row, rest]})
    return analyse(recording({0: plan(60, forward=60)}, events=(event,), sources=sources))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(WATCH)), 26.0, id="of a gradient"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, HOOKS, hook(WATCH)), 26.0, id="of a module's backward pass"),
        pytest.param(looks(80, 24, MODULE, hook(WATCH)), 26.0, id="of a module's forward pass"),
        pytest.param(
            looks(80, 24, MODULE, INNER, hook(WATCH)), 26.0, id="of a module's forward pass, in its inner call"
        ),
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(WATCH), NUMPY), 26.0, id="in a library that it calls"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(CLIP, "clip")), 0.0, id="it returns a gradient"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(PRUNE, "prune")), 0.0, id="it writes in place"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(FUSED, "fused")), 0.0, id="it updates parameters"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, hook(WATCH), ADAM), 0.0, id="in an optimizer"),
        pytest.param(looks(80, 26, TENSOR, ENGINE, FUNCTION, hook(WATCH)), 0.0, id="an autograd function"),
        pytest.param(looks(80, 24, MODULE, hook(WATCH, "forward")), 0.0, id="a forward pass"),
        pytest.param(looks(80, 24, MODULE, hook(WATCH, "wrapper"), MODULE, LINEAR), 0.0, id="a layer in a wrapper"),
        pytest.param(looks(80, 25, hook(WATCH)), 0.0, id="a function that the loop calls"),
    ],
)
def test_seconds_of_a_step(row: Any, expected: float) -> None:
    assert round(1000 * seen(row).value("step.hooks_s", 0), 1) == expected


def test_the_line_and_what_it_calls() -> None:
    (line,) = seen(looks(80, 26, TENSOR, ENGINE, hook(WATCH), NUMPY)).hook_lines
    assert (line.file, line.line, line.function, line.samples) == ("/job/hooks.py", WATCH, "watch", 80)
    assert line.leaf.startswith("histogram (")


def test_without_a_source_nobody_knows_what_a_hook_returns() -> None:
    a = seen(looks(80, 26, TENSOR, ENGINE, hook(WATCH)), sources=())
    assert not a.hook_lines and not a.by_rank("step.hooks_s")
