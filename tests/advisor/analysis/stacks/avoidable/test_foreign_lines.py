"""From a profile to the lines that compute outside torch in the middle of the step, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, profile
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

FETCH, FORWARD, LOSS, BACKWARD = 20, 24, 25, 26
LOADER = ("__next__", f"{LIBRARY}/torch/utils/data/dataloader.py", 700)
ENGINE = ("_engine_run_backward", f"{LIBRARY}/torch/autograd/graph.py", 1100)
OPTIMIZER = ("Optimizer.profile_hook_step.<locals>.wrapper", f"{LIBRARY}/torch/optim/optimizer.py", 500)
OWN = ("Net.forward", "/job/net.py", 7)
NUMPY = ("convolve", f"{LIBRARY}/numpy/core/numeric.py", 840)
SCIPY = ("linear_sum_assignment", f"{LIBRARY}/scipy/optimize/_lsap.py", 90)
EINOPS = ("rearrange", f"{LIBRARY}/einops/einops.py", 590)
STANDARD = ("deepcopy", "/usr/lib/python3.11/copy.py", 130)
ASLEEP = ("wait", "/usr/lib/python3.11/threading.py", 320)
SOURCE = (
    "\n" * 18
    + """for step in range(9):
    x = next(batches)
    y = 0


    out = net(x)
    {line}
    loss(out, w).backward()
"""
)


def looks(count: int, line: int, *inner: Call, text: str = "", **more: Any) -> Any:
    """A number of stack samples at a line of the loop and its calls, outermost first."""
    return profiled_steps.looks(count, ("train", SCRIPT, line), *inner, text=text, **more)


def seen(*rows: Any, facts: dict[str, Any] | None = None, **more: Any) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    step = [looks(20, FETCH, LOADER), looks(80, FORWARD, MODULE), looks(160, BACKWARD, TENSOR, ENGINE), *rows]
    stacks = [*step, looks(400 - sum(row["count"] for row in step), FORWARD, MODULE)]
    return analyse(recording({0: plan(60, forward=60)}, events=(profile(*stacks),), facts={100: facts or {}}, **more))


def of(row: Any, **more: Any) -> float:
    """ms per step"""
    return round(1000 * seen(row, **more).value("step.foreign_s", 0), 1)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, FORWARD, MODULE, OWN, NUMPY), 26.0, id="in the model, in numpy"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, SCIPY), 26.0, id="in scipy"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, STANDARD), 26.0, id="in Python's own library"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, text="y = np.dot(x, w)"), 26.0, id="in C, by the line's text"),
        pytest.param(looks(80, BACKWARD, TENSOR, ENGINE, OWN, NUMPY), 26.0, id="in a hook"),
        pytest.param({**looks(80, FORWARD, MODULE, OWN, NUMPY), "awake": 40}, 13.0, id="awake alone"),
        pytest.param(looks(80, FORWARD, MODULE, OWN), 0.0, id="in torch, or Python, without a frame"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, text="y = torch.dot(x, np.pi)"), 0.0, id="a line of tensors"),
        pytest.param(
            looks(80, FORWARD, MODULE, OWN, text="att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))"),
            0.0,
            id="attention by hand, scaled by a root",
        ),
        pytest.param(looks(80, FORWARD, MODULE, OWN, EINOPS), 0.0, id="a library that calls torch"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, NUMPY, MODULE), 0.0, id="torch below"),
        pytest.param(looks(80, FORWARD, MODULE, OWN, ASLEEP), 0.0, id="waiting"),
        pytest.param(looks(80, FETCH, LOADER, MODULE, OWN, NUMPY), 0.0, id="a module that prepares items"),
        pytest.param(looks(80, 28, OPTIMIZER, OWN, NUMPY), 0.0, id="an optimizer"),
        pytest.param(looks(80, 22, OWN, NUMPY), 0.0, id="before the model"),
    ],
)
def test_a_line_in_the_middle_of_the_step(row: Any, expected: float) -> None:
    assert of(row) == expected


@pytest.mark.parametrize(
    ("line", "foreign", "measuring"),
    [("w = weights(out)", 26.0, 0.0), ("shown = accuracy(out)", 0.0, 26.0)],
    ids=["what the loss uses", "a metric"],
)
def test_after_the_model_only_what_the_loss_uses(line: str, foreign: float, measuring: float) -> None:
    sources = (Source(SCRIPT, "", SOURCE.format(line=line)),)
    found = seen(looks(80, LOSS, OWN, NUMPY), sources=sources)
    assert 1000 * found.value("step.foreign_s", 0) == pytest.approx(foreign)
    assert 1000 * found.value("step.measuring_s", 0) == pytest.approx(measuring)


def test_a_loss_that_calls_c_is_known_by_the_text_of_its_line() -> None:
    sources = (Source(SCRIPT, "", SOURCE.format(line="w = weights(out)")),)
    for text, expected in (("drawn = np.sort(values)", 26.0), ("drawn = torch.sort(values)", 0.0)):
        found = seen(looks(80, LOSS, OWN, text=text), sources=sources)
        assert 1000 * found.value("step.foreign_s", 0) == pytest.approx(expected)


def test_the_users_innermost_line_is_named_with_what_it_calls() -> None:
    (line,) = seen(looks(80, FORWARD, MODULE, OWN, NUMPY)).foreign_lines
    assert (line.file, line.line, line.function) == ("/job/net.py", 7, "Net.forward")
    assert line.leaf == "convolve (numeric.py:840)" and line.samples == 80


def test_it_is_unknown_without_a_profile_and_no_part_of_evaluations() -> None:
    without = analyse(recording({0: plan(60)}))
    assert not without.has("step.foreign_s")
    assert without.reasons["step.foreign_s", 0] == "no profile of the training thread was taken"
    evaluated = {"evaluation_sites": [{"file": SCRIPT, "line": FORWARD, "count": 3}]}
    assert of(looks(80, FORWARD, MODULE, OWN, NUMPY), facts=evaluated) == 0.0


@pytest.mark.parametrize(("forward_ms", "expected"), [(60, 26.0), (600, 0.0)])
def test_on_a_gpu_no_more_than_it_had_nothing_queued(forward_ms: int, expected: float) -> None:
    cuda = {"cuda": {"devices": 1}}
    row = looks(80, FORWARD, MODULE, OWN, NUMPY)
    assert not seen(row, facts=cuda).has("step.foreign_s")
    events = [{"input_wait": 10, "forward": forward_ms, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    given = seen(row, facts=cuda, gpu_steps={0: gpu_steps(events)})
    assert given.value("step.foreign_s", 0) == pytest.approx(expected / 1000)
