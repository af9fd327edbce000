"""From a profile and the model's source to the time of operations composed of elementary ones."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, looks, profiled
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
SEQUENTIAL = ("Sequential.forward", f"{LIBRARY}/torch/nn/modules/container.py", 250)
NORM = ("norm", f"{LIBRARY}/torch/functional.py", 1700)
RENORM = ("_no_grad_embedding_renorm_", f"{LIBRARY}/torch/nn/functional.py", 2500)
NORMAL = ("MultivariateNormal.log_prob", f"{LIBRARY}/torch/distributions/multivariate_normal.py", 250)
NEW_GELU = ("NewGELUActivation.forward", f"{LIBRARY}/transformers/activations.py", 60)
OTHER_GELU = ("GELUActivation.forward", f"{LIBRARY}/transformers/activations.py", 80)
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
ON_GPU = {100: {"cuda": {"devices": 1}}}
LOOP = Source(SCRIPT, "", "")
SOURCES = (Source("/job/model.py", "", MODEL), LOOP)


def block(count: int, line: int, *calls: Call) -> Any:
    """Samples at a line of the module above, and in what it calls."""
    return looks(count, ("train", SCRIPT, 24), MODULE, ("Block.forward", "/job/model.py", line), *calls)


def seen(*rows: Any, **more: Any) -> Analysis:
    return profiled(*rows, source="", model=24, backward=26, **{"sources": SOURCES, **more})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        pytest.param(block(80, 4), 26.0, id="its first line"),
        pytest.param(block(80, 6), 26.0, id="its last line"),
        pytest.param(block(80, 8, NORM), 26.0, id="a function of torch"),
        pytest.param(block(80, 3, MODULE, LINEAR), 0.0, id="the layer before"),
        pytest.param(block(80, 6, MODULE, LINEAR), 0.0, id="a layer in the same line"),
        pytest.param(block(80, 3, MODULE, RENORM), 26.0, id="an embedding with a limited norm"),
        pytest.param(block(80, 7, NORMAL), 26.0, id="a distribution of a diagonal"),
        pytest.param(block(80, 3, MODULE, NEW_GELU), 26.0, id="transformers' composed activation"),
        pytest.param(block(80, 3, MODULE, OTHER_GELU), 0.0, id="another activation of transformers"),
        pytest.param(block(80, 6, TENSOR), 0.0, id="a backward pass"),
    ],
)
def test_seconds_of_a_step(row: Any, expected: float) -> None:
    assert round(1000 * seen(row).value("step.composed_s", 0), 1) == expected


def test_lines_by_form_the_longest_first() -> None:
    found = seen(block(30, 4), block(40, 6), block(20, 3, MODULE, RENORM)).composed_lines
    assert [(line.line, line.form, line.samples) for line in found] == [
        (4, "layer norm", 70),
        (3, "norm limited in each lookup", 20),
    ]


def test_a_distribution_of_a_full_covariance_is_none() -> None:
    full = (Source("/job/model.py", "", MODEL.replace("torch.diag_embed(self.var)", "self.covariance(x)")), LOOP)
    assert not seen(block(80, 7, NORMAL), sources=full).composed_lines


def test_on_a_gpu_and_without_sources_it_is_not_measured() -> None:
    assert not seen(block(80, 6), facts=ON_GPU).by_rank("step.composed_s")
    assert not seen(block(80, 6), facts=ON_GPU).composed_lines
    a = seen(block(80, 6), sources=())
    assert not a.by_rank("step.composed_s")


def test_a_model_whose_source_was_not_kept_is_unknown() -> None:
    a = seen(block(80, 6), sources=(LOOP,))
    assert not a.by_rank("step.composed_s") and "model.py" in a.reasons["step.composed_s", 0]


@pytest.mark.parametrize(
    ("below", "samples"),
    [
        ((MODULE, LINEAR), 80),
        ((), 80),
        ((MODULE, SEQUENTIAL, MODULE, LINEAR), 0),
        ((MODULE, ("LSTM.forward", f"{LIBRARY}/torch/nn/modules/rnn.py", 1100)), 0),
    ],
    ids=["linear", "the rows themselves", "a whole network", "a recurrent layer"],
)
def test_a_layer_on_one_hot_rows_is_a_linear_one(below: tuple[Call, ...], samples: int) -> None:
    model = (
        "class Block(nn.Module):\n    def forward(self, y):\n        return self.project(F.one_hot(y, 10).float())\n"
    )
    found = seen(block(80, 3, *below), sources=(Source("/job/model.py", "", model), LOOP)).composed_lines
    assert sum(line.samples for line in found) == samples
    assert all(line.form == "layer on one-hot rows" for line in found)


@pytest.mark.parametrize(
    ("layer", "file", "samples"),
    [("CosineSimilarity", "distance.py", 80), ("PairwiseDistance", "distance.py", 0), ("Bilinear", "linear.py", 0)],
)
def test_a_layer_of_all_pairs_is_one_of_cosine_similarities(layer: str, file: str, samples: int) -> None:
    model = "class Block(nn.Module):\n    def forward(self, z):\n        return self.score(z.unsqueeze(1), z.unsqueeze(0))\n"
    below = (MODULE, (f"{layer}.forward", f"{LIBRARY}/torch/nn/modules/{file}", 90))
    found = seen(block(80, 3, *below), sources=(Source("/job/model.py", "", model), LOOP)).composed_lines
    assert sum(line.samples for line in found) == samples
    assert not seen(block(80, 3), sources=(Source("/job/model.py", "", model), LOOP)).composed_lines


def test_the_divergence_from_smoothed_targets_may_be_a_module() -> None:
    smoothing = (
        "def forward(self, x, target):\n"
        "    dense = torch.full_like(x, 0.1)\n"
        "    dense.scatter_(1, target.unsqueeze(1), 0.9)\n"
        "    return self.criterion(x, dense)  # nn.KLDivLoss\n"
    )
    row = looks(80, ("train", SCRIPT, 24), MODULE, ("forward", "/job/model.py", 4), MODULE, LINEAR)
    found = seen(row, sources=(Source("/job/model.py", "", smoothing), LOOP)).composed_lines
    assert [(line.line, line.form, line.samples) for line in found] == [(2, "smoothed targets", 80)]


def test_a_librarys_activation_is_chosen_where_its_model_is_configured() -> None:
    loop = Source(SCRIPT, "", "from transformers import GPT2Config\nconfig = GPT2Config()\n")
    activation, norm = block(30, 3, MODULE, NEW_GELU), block(40, 4)
    found = seen(activation, norm, sources=(SOURCES[0], loop)).composed_lines
    assert {line.form: line.option for line in found} == {
        "gelu_new": {"file": SCRIPT, "line": 2},
        "layer norm": None,
    }
