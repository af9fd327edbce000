"""From a profile and the model's source to the time of operations composed of elementary ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Source

LIBRARY = "/env/site-packages"
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1790)
LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
NORM = ("norm", f"{LIBRARY}/torch/functional.py", 1700)
RENORM = ("_no_grad_embedding_renorm_", f"{LIBRARY}/torch/nn/functional.py", 2500)
NORMAL = ("MultivariateNormal.log_prob", f"{LIBRARY}/torch/distributions/multivariate_normal.py", 250)
NEW_GELU = ("NewGELUActivation.forward", f"{LIBRARY}/transformers/activations.py", 60)
OTHER_GELU = ("GELUActivation.forward", f"{LIBRARY}/transformers/activations.py", 80)
TENSOR = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)
MODEL = """\
class Block(nn.Module):
    def forward(self, x):
        h = self.layer(x)
        mean = h.mean(-1, keepdim=True)
        std = h.std(-1, keepdim=True)
        h = self.a * (h - mean) / (std + 1e-6)
        p = MultivariateNormal(h, torch.diag_embed(self.var))
        return torch.norm(h.unsqueeze(1) - self.codes, dim=-1)
"""
SOURCES = (Source("/job/model.py", "", MODEL),)

Call = tuple[str, str, int]


def looks(count: int, line: int, *inner: Call) -> Any:
    """Samples in the module above, and its calls, outermost first."""
    calls = [*reversed(inner), ("Block.forward", "/job/model.py", line), MODULE, ("train", "/job/train.py", 24)]
    frames = [{"function": name, "file": file, "line": at} for name, file, at in calls]
    return {"count": count, "frames": frames, "user": {**next(f for f in frames if "/job/" in f["file"]), "text": ""}}


def seen(*rows: Any, gpu: bool = False, sources: Sequence[Source] = SOURCES) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    rest = (
        {"function": TENSOR[0], "file": TENSOR[1], "line": TENSOR[2]},
        {"function": "train", "file": "/job/train.py", "line": 26},
    )
    backward = {"count": 400 - sum(row["count"] for row in rows), "frames": [*rest], "user": {**rest[1], "text": ""}}
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": [*rows, backward]})
    facts = {100: {"cuda": {"devices": 1}}} if gpu else {100: {}}
    return analyse(recording({0: plan(60, forward=60)}, events=(event,), sources=sources, facts=facts))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(looks(80, 4), 26.0, id="its first line"),
        pytest.param(looks(80, 6), 26.0, id="its last line"),
        pytest.param(looks(80, 8, NORM), 26.0, id="a function of torch"),
        pytest.param(looks(80, 3, MODULE, LINEAR), 0.0, id="the layer before"),
        pytest.param(looks(80, 6, MODULE, LINEAR), 0.0, id="a layer in the same line"),
        pytest.param(looks(80, 3, MODULE, RENORM), 26.0, id="an embedding with a limited norm"),
        pytest.param(looks(80, 7, NORMAL), 26.0, id="a distribution of a diagonal"),
        pytest.param(looks(80, 3, MODULE, NEW_GELU), 26.0, id="transformers' composed activation"),
        pytest.param(looks(80, 3, MODULE, OTHER_GELU), 0.0, id="another activation of transformers"),
        pytest.param(looks(80, 6, TENSOR), 0.0, id="a backward pass"),
    ],
)
def test_seconds_of_a_step(row: Any, expected: float) -> None:
    assert round(1000 * seen(row).value("step.composed_s", 0), 1) == expected


def test_lines_by_form_the_longest_first() -> None:
    found = seen(looks(30, 4), looks(40, 6), looks(20, 3, MODULE, RENORM)).composed_lines
    assert [(line.line, line.form, line.samples) for line in found] == [
        (4, "layer norm", 70),
        (3, "norm limited in each lookup", 20),
    ]


def test_a_distribution_of_a_full_covariance_is_none() -> None:
    full = (Source("/job/model.py", "", MODEL.replace("torch.diag_embed(self.var)", "self.covariance(x)")),)
    assert not seen(looks(80, 7, NORMAL), sources=full).composed_lines


def test_on_a_gpu_and_without_sources_it_is_not_measured() -> None:
    assert not seen(looks(80, 6), gpu=True).by_rank("step.composed_s")
    assert not seen(looks(80, 6), gpu=True).composed_lines
    a = seen(looks(80, 6), sources=())
    assert not a.by_rank("step.composed_s")
