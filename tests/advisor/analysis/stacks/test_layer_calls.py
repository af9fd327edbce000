"""Lines that call recurrent layers for one time step at a time, or a cross entropy, are found in profiles and sources."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, MODULE, SCRIPT, TENSOR, Call, looks, profile
from recordings import plan, recording
from rn50_advisor.advisor.analysis.stacks.layer_calls import layer_line, loss_lines, packing_lines, recurrent_lines
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.recording import Recording, Source

MODEL, TORCH = "/job/model.py", f"{LIBRARY}/torch"
LAYER = ("GRU.forward", f"{TORCH}/nn/modules/rnn.py", 1440)
LINEAR = ("Linear.forward", f"{TORCH}/nn/modules/linear.py", 130)
LOOP = """\
class Net(nn.Module):
    def forward(self, xs, h):
        for x_t in xs:
            out, h = self.gru(x_t.unsqueeze(0), h)
        return self.head(out)
"""
INSIDE = ("Net.forward", MODEL, 4)


def found(*rows: Any, model: str = LOOP) -> tuple[HotLine, ...]:
    return recurrent_lines(recorded(*rows, model=model))


def recorded(*rows: Any, model: str = LOOP, **more: Any) -> Recording:
    backward = looks(100, ("main", SCRIPT, 20), ("update", SCRIPT, 34), TENSOR)
    return recording({0: plan(60)}, events=(profile(*rows, backward),), sources=(Source(MODEL, "", model),), **more)


def trained(*calls: Call) -> tuple[Call, ...]:
    return (("main", SCRIPT, 20), ("update", SCRIPT, 33), MODULE, *calls)


STEPWISE = looks(75, *trained(INSIDE, MODULE, LAYER))
HEAD = looks(25, *trained(("Net.forward", MODEL, 5), MODULE, LINEAR))


def test_a_layer_called_in_a_loop_over_time_has_its_share_of_the_forward_pass() -> None:
    (line,) = found(STEPWISE, HEAD)
    assert (line.file, line.line, line.leaf, line.share) == (MODEL, 4, "GRU", 0.75)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(LOOP.replace("for x_t in xs:", "if True:"), id="no loop"),
        pytest.param(
            LOOP.replace("for x_t in xs:", "for gru in self.layers:").replace("self.gru(", "gru("), id="layers"
        ),
        pytest.param(LOOP.replace("self.gru(", "self.layers[x_t]("), id="layers by number"),
    ],
)
def test_a_layer_called_once_is_none(model: str) -> None:
    assert found(STEPWISE, HEAD, model=model) == ()


def test_the_loop_may_be_in_a_function_that_calls_the_one_with_the_layer() -> None:
    model = (
        LOOP.replace("self.gru(x_t.unsqueeze(0), h)", "self.cell(x_t, h)")
        + """\

    def cell(self, x_t, h):
        return self.gru(x_t[None], h)
"""
    )
    (line,) = found(looks(75, *trained(INSIDE, ("Net.cell", MODEL, 8), MODULE, LAYER)), HEAD, model=model)
    assert line.line == 4


def test_a_rollout_that_the_same_line_calls_is_none() -> None:
    """`update(collect())`: an environment needs the model's answer after each step."""
    rollout = looks(300, ("main", SCRIPT, 20), ("collect", SCRIPT, 50), MODULE, INSIDE, MODULE, LAYER)
    (line,) = found(STEPWISE, HEAD, rollout)
    assert (line.samples, line.share) == (75, 75 / 400)


def test_a_line_that_calls_the_model_and_the_backward_pass_itself_is_part_of_the_step() -> None:
    """`criterion(model(x)).backward()`"""
    step = ("main", SCRIPT, 20)
    (line,) = found(looks(75, step, MODULE, INSIDE, MODULE, LAYER), looks(60, step, TENSOR), HEAD)
    assert line.line == 4


def test_layers_before_python_3_11_have_no_name() -> None:
    (line,) = found(looks(75, *trained(INSIDE, MODULE, ("forward", *LAYER[1:]))), HEAD)
    assert line.leaf == ""


PACKING = """\
class Net(nn.Module):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths
        )
        return self.rnn(packed)
"""


@pytest.mark.parametrize(
    ("layer", "on_gpu", "lines"), [("LSTM", False, ((MODEL, 3),)), ("GRU", False, ()), ("LSTM", True, ())]
)
def test_sequences_are_packed_for_an_lstm_on_a_cpu(
    layer: str, on_gpu: bool, lines: tuple[tuple[str, int], ...]
) -> None:
    facts = {100: {"rank": 0, "model": {"layers": {layer: 1}}, "cuda": {"index": 0} if on_gpu else None}}
    assert packing_lines(recorded(HEAD, model=PACKING, facts=facts)) == lines
    assert packing_lines(recorded(HEAD, facts=facts)) == ()


def test_a_cross_entropy_is_the_users_line_that_calls_it() -> None:
    loss = ("cross_entropy", f"{TORCH}/nn/functional.py", 3500)
    module = ("CrossEntropyLoss.forward", f"{TORCH}/nn/modules/loss.py", 1390)
    rows = (
        HEAD,
        looks(12, ("main", SCRIPT, 20), ("update", SCRIPT, 33), ("Net.loss", MODEL, 40), loss),
        looks(8, ("main", SCRIPT, 20), ("update", SCRIPT, 32), MODULE, module, loss),
        looks(5, ("main", SCRIPT, 20), ("update", SCRIPT, 33), ("cross_entropy", MODEL, 60)),
    )
    ignoring = {100: {"backward_nodes": {"passes": 3, "ns": 9, "classes": [], "ignored_ns": 4}}}
    assert loss_lines(recorded(*rows)) == (), "nobody asks where no loss ignores targets"
    assert [(each.file, each.line, each.samples) for each in loss_lines(recorded(*rows, facts=ignoring))] == [
        (MODEL, 40, 12),
        (SCRIPT, 32, 8),
    ]


NAMED = """\
class Net:
    def forward(self, x):
        x = self.encoder(x)
        return self.head(x)
"""


@pytest.mark.parametrize(
    ("weight", "at", "line"),
    [
        ("head.weight", 4, 4),
        ("head.0.weight", 4, 4),
        ("encoder.layers.3.weight", 3, 3),
        ("head.weight", 3, None),
        ("0.weight", 4, None),
        ("", 4, None),
    ],
)
def test_a_layer_has_the_line_that_calls_it_or_a_part_around_it_by_name(weight: str, at: int, line: int | None) -> None:
    row = looks(9, ("train", SCRIPT, 24), MODULE, ("Net.forward", "/job/net.py", at), MODULE)
    found = layer_line(row, (Source("/job/net.py", "", NAMED),), weight)
    assert found == (None if line is None else ("/job/net.py", line, "Net.forward"))
