"""From a profile and the source of hooks to the time that those which only watch take in a step."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, looks, profiled
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

TORCH = f"{LIBRARY}/torch"
INNER = ("Module._call_impl.<locals>.inner", f"{TORCH}/nn/modules/module.py", 1830)
LINEAR = ("Linear.forward", f"{TORCH}/nn/modules/linear.py", 130)
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


def step(count: int, line: int, *calls: Call) -> Any:
    """Samples at a line of the training function, and in what it calls."""
    return looks(count, ("train", SCRIPT, line), *calls)


def hook(line: int, name: str = "watch") -> Call:
    return (name, "/job/hooks.py", line)


def seen(row: Any, sources: tuple[Source, ...] = SOURCES) -> Analysis:
    return profiled(row, source="", model=24, backward=26, sources=sources)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(WATCH)), 26.0, id="of a gradient"),
        pytest.param(step(80, 26, TENSOR, ENGINE, HOOKS, hook(WATCH)), 26.0, id="of a module's backward pass"),
        pytest.param(step(80, 24, MODULE, hook(WATCH)), 26.0, id="of a module's forward pass"),
        pytest.param(
            step(80, 24, MODULE, INNER, hook(WATCH)), 26.0, id="of a module's forward pass, in its inner call"
        ),
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(WATCH), NUMPY), 26.0, id="in a library that it calls"),
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(CLIP, "clip")), 0.0, id="it returns a gradient"),
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(PRUNE, "prune")), 0.0, id="it writes in place"),
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(FUSED, "fused")), 0.0, id="it updates parameters"),
        pytest.param(step(80, 26, TENSOR, ENGINE, hook(WATCH), ADAM), 0.0, id="in an optimizer"),
        pytest.param(step(80, 26, TENSOR, ENGINE, FUNCTION, hook(WATCH)), 0.0, id="an autograd function"),
        pytest.param(step(80, 24, MODULE, hook(WATCH, "forward")), 0.0, id="a forward pass"),
        pytest.param(step(80, 24, MODULE, hook(WATCH, "wrapper"), MODULE, LINEAR), 0.0, id="a layer in a wrapper"),
        pytest.param(step(80, 25, hook(WATCH)), 0.0, id="a function that the loop calls"),
    ],
)
def test_seconds_of_a_step(row: Any, expected: float) -> None:
    assert round(1000 * seen(row).value("step.hooks_s", 0), 1) == expected


def test_the_line_and_what_it_calls() -> None:
    (line,) = seen(step(80, 26, TENSOR, ENGINE, hook(WATCH), NUMPY)).hook_lines
    assert (line.file, line.line, line.function, line.samples) == ("/job/hooks.py", WATCH, "watch", 80)
    assert line.leaf.startswith("histogram (")


def test_without_a_source_nobody_knows_what_a_hook_returns() -> None:
    watched = step(80, 26, TENSOR, ENGINE, hook(WATCH))
    for sources in ((), (Source(SCRIPT, "", "import hooks\n"),)):
        a = seen(watched, sources)
        assert not a.hook_lines and not a.by_rank("step.hooks_s")
    few = step(9, 26, TENSOR, ENGINE, hook(WATCH))
    assert seen(few, (Source(SCRIPT, "", "import hooks\n"),)).by_rank("step.hooks_s") == {0: 0.0}
