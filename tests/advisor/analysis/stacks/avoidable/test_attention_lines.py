"""From a profile and the model's source to the time that attention in parts takes in the forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, profile
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
DROPOUT = ("Dropout.forward", f"{LIBRARY}/torch/nn/modules/dropout.py", 70)
EAGER = ("eager_attention_forward", f"{LIBRARY}/transformers/models/bert/modeling_bert.py", 120)
FUNCTIONAL = f"{LIBRARY}/torch/nn/functional.py"
SOFTMAX = ("softmax", FUNCTIONAL, 2100)
MODEL = """\
class Attention(nn.Module):
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT
        weights = self.drop(scores.softmax(-1))
        return self.proj(weights @ v)
"""
SOURCES = (Source("/job/model.py", "", MODEL),)


def looks(count: int, line: int, *inner: Call) -> Any:
    """Samples in the module above, and its calls, outermost first."""
    return profiled_steps.looks(
        count, ("train", SCRIPT, 24), MODULE, ("Attention.forward", "/job/model.py", line), *inner
    )


def multihead(line: int) -> Call:
    return ("multi_head_attention_forward", FUNCTIONAL, line)


def seen(*rows: Any, gpu: bool = False, sources: Sequence[Source] = SOURCES) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    backward = profiled_steps.looks(400 - sum(row["count"] for row in rows), ("train", SCRIPT, 26), TENSOR)
    facts = {100: {"cuda": {"devices": 1}}} if gpu else {100: {}}
    return analyse(
        recording({0: plan(60, forward=60)}, events=(profile(*rows, backward),), sources=sources, facts=facts)
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, 4), 26.0, id="the first product"),
        pytest.param(looks(80, 5), 26.0, id="the softmax"),
        pytest.param(looks(80, 5, MODULE, DROPOUT), 26.0, id="dropout of the weights"),
        pytest.param(looks(80, 6), 26.0, id="the second product"),
        pytest.param(looks(80, 6, MODULE, LINEAR), 0.0, id="a layer in the same line"),
        pytest.param(looks(80, 3, MODULE, LINEAR), 0.0, id="before the products"),
        pytest.param(looks(80, 3, MODULE, EAGER), 26.0, id="in transformers"),
    ],
)
def test_seconds_of_the_forward_pass(row: Any, expected: float) -> None:
    assert round(1000 * seen(row).value("step.attention_s", 0), 1) == expected


def test_where_it_is_and_what_becomes_of_the_weights() -> None:
    dropped, whole = looks(30, 5, MODULE, DROPOUT), looks(50, 6)
    (line,) = seen(dropped, whole).attention_lines
    assert (line.line, line.samples, line.by) == (4, 80, "own")
    assert (line.drops_weights, line.keeps_weights) == (True, False)
    assert not seen(looks(1, 5, MODULE, DROPOUT), whole).attention_lines[0].drops_weights, "with a probability of zero"
    (other,) = seen(looks(50, 3, MODULE, EAGER)).attention_lines
    assert (other.line, other.by) == (3, "transformers")


def test_multihead_attention_that_returns_its_weights() -> None:
    """It calls softmax only then; its layers' projections lie further away from that line."""
    rows = looks(40, 3, MODULE, multihead(7065), SOFTMAX), looks(40, 3, MODULE, multihead(7069))
    found = seen(*rows, looks(80, 3, MODULE, multihead(7074)))
    assert round(1000 * found.value("step.attention_s", 0), 1) == 26.0
    (line,) = found.attention_lines
    assert (line.by, line.keeps_weights, line.line) == ("multihead", True, 3)
    assert not seen(looks(80, 3, MODULE, multihead(7069))).attention_lines


@pytest.mark.torch
def test_both_products_of_multihead_attention_are_near_its_softmax() -> None:
    functional = pytest.importorskip("torch.nn.functional")
    lines = inspect.getsource(functional.multi_head_attention_forward).splitlines()
    softmax = next(n for n, line in enumerate(lines) if "= softmax(" in line)
    products = [n - softmax for n, line in enumerate(lines) if "torch.bmm(" in line or "torch.baddbmm(" in line]
    assert len(products) == 3 and min(products) >= -8 and max(products) == 4
    assert all(abs(n - softmax) > 4 for n, line in enumerate(lines) if " linear(" in line)


def test_it_is_unknown_where_the_source_of_the_model_was_not_kept() -> None:
    edited = (Source("/job/model.py", "", MODEL, edited=True),)
    for sources in ((), edited):
        found = seen(looks(80, 5), sources=sources)
        assert not found.has("step.attention_s")
        assert found.reasons["step.attention_s", 0] == "the source of its model was not kept: /job/model.py"
    assert seen(looks(8, 5), sources=()).value("step.attention_s", 0) == 0.0, "too little to be worth a word"
    assert seen(looks(80, 3, MODULE, EAGER), sources=()).value("step.attention_s", 0) > 0, (
        "transformers' is known by its name"
    )


def test_on_a_gpu_the_lines_alone_are_known() -> None:
    found = seen(looks(80, 5), gpu=True)
    assert found.attention_lines and not found.by_rank("step.attention_s")
