"""From timed backward passes and a profile to convolutions of single channels with large kernels, and the lines that call long ones."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.model.analysis import Analysis

CONVOLUTION = ("Conv1d._conv_forward", "/env/torch/nn/modules/conv.py", 360)
SOURCE = """\
class Net:
    def forward(self, x):
        filtered = self.filter(x)
        return self.mix(filtered)

def train():
    for x, y in loader:
        loss = net(x).sum()
        loss.backward()
"""


def kernel(
    dims: int, size: int, ns: int, layer: str = "layers.0.filter.weight", *, single: bool = True
) -> dict[str, Any]:
    return {"dims": dims, "size": size, "single": single, "layer": layer, "ns": ns}


PIXELS = kernel(2, 1, 150, "", single=False)


def seen(*kernels: dict[str, Any], known: bool = True) -> Analysis:
    rows = (
        looks(30, ("train", SCRIPT, 8), MODULE, ("Net.forward", SCRIPT, 3), MODULE, CONVOLUTION),
        looks(50, ("train", SCRIPT, 8), MODULE, ("Net.forward", SCRIPT, 4), MODULE, CONVOLUTION),
    )
    timed: dict[str, Any] = {"passes": 3, "ns": 1000, "classes": []}
    timed |= {"kernels": list(kernels)} if known else {}
    return profiled(*rows, source=SOURCE, model=8, backward=9, facts={100: {"backward_nodes": timed}})


def test_large_kernels_have_their_share_of_the_pass() -> None:
    a = seen(kernel(2, 25, 200), kernel(2, 9, 300), kernel(1, 64, 100), kernel(1, 31, 50), kernel(3, 125, 10), PIXELS)
    backward = a.model.own[0]["backward"]
    assert a.value("step.depthwise_s", 0) == pytest.approx(0.2 * backward)
    assert a.value("step.long_kernels_s", 0) == pytest.approx(0.1 * backward)
    assert a.value("step.pixelwise_s", 0) == pytest.approx(0.15 * backward)


def test_the_longest_has_the_line_that_calls_its_layer() -> None:
    a = seen(kernel(1, 64, 100, "mix.weight"), kernel(1, 257, 200))
    assert a.long_kernel is not None and a.long_kernel.size == 257
    assert [(line.line, line.samples) for line in a.long_kernel.lines] == [(3, 30)]


def test_short_kernels_are_none() -> None:
    assert seen(kernel(1, 63, 100), kernel(2, 49, 100)).long_kernel is None


def test_an_older_recorder_did_not_look_for_them() -> None:
    a = seen(known=False)
    assert not a.has("step.depthwise_s") and not a.has("step.long_kernels_s") and a.long_kernel is None
