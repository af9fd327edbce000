"""From a profile to what a step computes a second time: checkpointed forward passes, and lines that repeat an earlier one."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, MODULE, SCRIPT, Call, profile, profiled
from profiled_steps import looks as looks_at
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis

BACKWARD = (
    ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640),
    ("run", f"{LIBRARY}/torch/autograd/graph.py", 1100),
)
AGAIN = (("recompute_fn", f"{LIBRARY}/torch/utils/checkpoint.py", 1300),)
CHECKPOINT = (("checkpoint", f"{LIBRARY}/torch/utils/checkpoint.py", 500),)
TRANSFORMERS = (("__call__", f"{LIBRARY}/transformers/modeling_layers.py", 90),)
LAYER = (("forward", f"{LIBRARY}/torch/nn/modules/linear.py", 120),)


def looks(count: int, line: int, *calls: Call) -> Any:
    """Stack samples at a line of the script and the calls below it, outermost first."""
    return profiled_steps.looks(count, ("train", SCRIPT, line), *calls)


def seen(*rows: dict[str, Any], facts: dict[str, Any] | None = None) -> Analysis:
    """Steps of 130 ms with a backward pass of 60, and a profile of these looks."""
    return analyse(recording({0: plan(60, backward=60)}, events=(profile(*rows),), facts={100: facts or {}}))


FORWARD_PASS = looks(100, 20, *CHECKPOINT, *LAYER)


def test_the_second_forward_pass_is_what_runs_below_a_checkpoint_in_the_backward_pass() -> None:
    found = seen(FORWARD_PASS, looks(200, 30, *BACKWARD), looks(100, 30, *BACKWARD, *AGAIN, *LAYER))
    assert found.value("step.recomputing_s", 0) == pytest.approx(0.25 * found.value("step.time_s"))
    assert [(line.file, line.line, line.samples) for line in found.recomputing_lines] == [(SCRIPT, 20, 100)]


def test_it_takes_no_more_than_the_backward_pass() -> None:
    found = seen(looks(400, 30, *BACKWARD, *AGAIN, *LAYER))
    assert found.value("step.recomputing_s", 0) == pytest.approx(0.06)


def test_the_line_is_the_users_where_a_library_asks() -> None:
    found = seen(looks(400, 20, *TRANSFORMERS, *CHECKPOINT, *LAYER))
    assert (found.recomputing_lines[0].file, found.recomputing_lines[0].line) == (SCRIPT, 20)


def test_without_checkpoints_nothing_is_recomputed() -> None:
    found = seen(looks(200, 20, *LAYER), looks(200, 30, *BACKWARD))
    assert (found.value("step.recomputing_s", 0), found.recomputing_lines) == (0.0, ())


@pytest.mark.parametrize(
    ("count", "facts"), [(99, {}), (400, {"cuda": {"index": 0}})], ids=["few looks", "in a thread of autograd's"]
)
def test_what_samples_cannot_show_is_not_measured(count: int, facts: dict[str, Any]) -> None:
    assert not seen(looks(count, 30, *BACKWARD, *AGAIN), facts=facts).has("step.recomputing_s")


SOURCE = """\
import torch
from torch import nn
from torch.nn import functional as F

def train(model, loader, optimizer):
    for x, y in loader:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        right = (model(x).argmax(1) == y).sum().item()
        again = torch.cdist(logits, logits)
        more = torch.cdist(logits, logits).argmin(1)
        told += accuracy(model(x), y)

def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()
"""
NET = ("Net.forward", "/job/model.py", 7)


def twice(*rows: Any, source: str = SOURCE.replace("        optimizer.step()\n", ""), **facts: Any) -> Analysis:
    return profiled(*rows, source=source, model=7, backward=9, facts={100: facts})


@pytest.mark.parametrize(
    ("row", "line", "earlier"),
    [
        (looks_at(80, ("train", SCRIPT, 10), MODULE, NET), 10, 7),
        (looks_at(80, ("train", SCRIPT, 12)), 12, 11),
        (looks_at(80, ("train", SCRIPT, 13), MODULE, NET), 13, 10),
    ],
    ids=["a model", "an operation", "for a metric that is no part of the loss"],
)
def test_lines_that_compute_what_an_earlier_one_has_computed(row: Any, line: int, earlier: int) -> None:
    a = twice(row)
    (found,) = a.second_computations
    assert (found.line.file, found.line.line, found.line.samples) == (SCRIPT, line, 80)
    assert (found.earlier, found.recorded) == (earlier, False)
    assert a.value("step.second_s", 0) == pytest.approx(0.2 * 0.130)


@pytest.mark.parametrize(
    ("row", "source", "facts"),
    [
        (looks_at(80, ("train", SCRIPT, 11), MODULE, NET), SOURCE, {}),
        (
            looks_at(80, ("train", SCRIPT, 10), MODULE, NET),
            SOURCE.replace("        optimizer.step()\n", ""),
            {"model": {"layers": {"Linear": 4, "Dropout1d": 1}}},
        ),
        (looks_at(80, ("train", SCRIPT, 8), MODULE, NET), SOURCE, {}),
    ],
    ids=["after an update", "dropout", "nothing twice"],
)
def test_a_second_result_that_may_differ_is_none(row: Any, source: str, facts: Any) -> None:
    a = twice(row, source=source, **facts)
    assert a.second_computations == () and a.value("step.second_s", 0) == 0.0
