"""From a profile and timed backward passes to the time of pooling and of convolutions."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, profile
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis

FUNCTIONAL, LAYERS = f"{LIBRARY}/torch/nn/functional.py", f"{LIBRARY}/torch/nn/modules"
MODEL: Call = ("Net.forward", "/job/model.py", 12)
MAXIMUM: tuple[Call, ...] = (("MaxPool2d.forward", f"{LAYERS}/pooling.py", 213), ("_max_pool2d", FUNCTIONAL, 830))
CONVOLUTION: tuple[Call, ...] = (("Conv2d._conv_forward", f"{LAYERS}/conv.py", 543),)
CLASSES = [
    {"name": "ConvolutionBackward0", "count": 2, "ns": 300, "written": 0, "needed": 0},
    {"name": "MaxPool2DWithIndicesBackward0", "count": 2, "ns": 100, "written": 0, "needed": 0},
]
NODES = {"passes": 1, "ns": 600, "partly_ns": 0, "unneeded_ns": 0, "classes": CLASSES}


def looks(count: int, *inner: Call) -> Any:
    """Samples in the user's model, and its calls, outermost first."""
    return profiled_steps.looks(count, ("train", SCRIPT, 24), MODULE, MODEL, *inner)


def seen(*rows: Any, nodes: Any = NODES, gpu: bool = False) -> Analysis:
    """Steps of 130 ms, of which 60 in the forward and 50 in the backward pass, and a profile of 400 samples."""
    backward = profiled_steps.looks(400 - sum(row["count"] for row in rows), ("train", SCRIPT, 26), TENSOR)
    facts = {**({"backward_nodes": nodes} if nodes else {}), **({"cuda": {"devices": 1}} if gpu else {})}
    return analyse(
        recording({0: plan(60, forward=60)}, events=(profile(*rows, backward),), facts={100: facts}),
    )


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (MAXIMUM, 26.0),
        ((("max_pool2d_with_indices", FUNCTIONAL, 790),), 26.0),
        ((("AvgPool2d.forward", f"{LAYERS}/pooling.py", 700),), 26.0),
        ((("Upsample.forward", f"{LAYERS}/upsampling.py", 170), ("interpolate", FUNCTIONAL, 4600)), 26.0),
        ((("interpolate", FUNCTIONAL, 4600),), 0.0),
        ((("AdaptiveAvgPool2d.forward", f"{LAYERS}/pooling.py", 1500),), 0.0),
        ((("MaxPool1d.forward", f"{LAYERS}/pooling.py", 120),), 0.0),
        (CONVOLUTION, 0.0),
        ((), 0.0),
    ],
)
def test_pooling_and_resizing_of_images_count(inner: tuple[Call, ...], expected: float) -> None:
    assert round(1000 * seen(looks(80, *inner)).value("step.pooling_s", 0), 1) == expected


def test_convolutions_count_in_both_passes() -> None:
    found = seen(looks(80, *CONVOLUTION), looks(40, *MAXIMUM))
    assert round(1000 * found.value("step.convolutions_s", 0), 1) == 51.0, "26 by samples, and half of 50"


def test_convolutions_are_not_measured_without_a_timed_backward_pass() -> None:
    found = seen(looks(80, *CONVOLUTION), nodes=None)
    assert found.get("step.convolutions_s", 0) is None and found.get("step.pooling_s", 0) == 0.0


def test_samples_of_the_host_say_nothing_about_a_gpu() -> None:
    found = seen(looks(80, *MAXIMUM), gpu=True)
    assert found.get("step.pooling_s", 0) is None
