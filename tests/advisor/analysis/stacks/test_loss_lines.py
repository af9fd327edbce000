"""Stacks that compute a loss outside torch's modules, told from other work of the loop."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, MODULE, SCRIPT, Call, looks
from rn50_advisor.advisor.analysis.stacks.loss_lines import computes_loss, model_lines
from rn50_advisor.advisor.model.recording import Source

LINES = (
    "def train():",
    "    for batch in batches:",
    "        x = batch / 255",
    "        dist = net.dist(x)",  # 4
    "        ratio = (dist.log_prob(act) - old).exp()",
    "        loss = weighed(ratio)",  # 6
    "        value = net.v(torch.stack([f(each) for each in batch]))",
    "        obs = env.step(act)",
    "        obs, act = env.step(dist.sample())",  # 9
    "        parts = torch.tensor(ratio.tolist())",
    "        loss.backward()",
    "class Net:",
    "    def dist(self, x):",
    "        return Normal(self.pi(x), 1)",  # 14
    "def weighed(ratio):",
    "    return ratio.mean()",  # 16
    *[""] * 73,
    "train()",  # 90
)
SOURCES = (Source(SCRIPT, "", "\n".join(LINES)),)
NORMAL = ("Normal.__init__", f"{LIBRARY}/torch/distributions/normal.py", 30)
GYM = ("PendulumEnv.step", f"{LIBRARY}/gymnasium/envs/pendulum.py", 120)
ADAM = ("zero_grad", f"{LIBRARY}/torch/optim/optimizer.py", 120)


def at(line: int, *calls: Call) -> Any:
    return looks(1, ("train", SCRIPT, line), *calls)["frames"]


def method(line: int) -> Call:
    return "Net.dist", SCRIPT, line


MODEL = model_lines([at(4, method(14), MODULE), at(7, MODULE)])


def test_lines_of_the_model_are_those_below_which_a_module_runs() -> None:
    assert {(SCRIPT, "<module>"): {90}, (SCRIPT, "train"): {4, 7}, (SCRIPT, "Net.dist"): {14}} == MODEL


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        pytest.param(at(4), True, id="the line that calls the model"),
        pytest.param(at(4, method(14), NORMAL), True, id="what a method does with the model's output"),
        pytest.param(at(5, NORMAL), True, id="what is computed of it"),
        pytest.param(at(6, ("weighed", SCRIPT, 16)), True, id="a function of the user's that gets it"),
        pytest.param(at(3), False, id="a batch before the model"),
        pytest.param(at(4, ("scaled", SCRIPT, 16)), False, id="what a line calls beside the model"),
        pytest.param(at(7), False, id="tensors made in the model's line"),
        pytest.param(at(8, ("Env.step", SCRIPT, 16)), False, id="an environment of the user's"),
        pytest.param(at(9, GYM), False, id="an environment of a library, which gets what the model says"),
        pytest.param(at(10), False, id="numbers made of it"),
        pytest.param(at(2), False, id="the head of the loop"),
        pytest.param(at(5, ADAM), False, id="an optimizer"),
        pytest.param((), False, id="nothing"),
    ],
)
def test_what_computes_the_loss(stack: Any, expected: bool) -> None:
    assert computes_loss(stack, MODEL, SOURCES) is expected


def test_a_training_step_is_no_environments() -> None:
    lines = ("def step(x):", "    out = net(x)", "    return out.square().mean()")
    own = (Source("/job/step.py", "", "\n".join(lines)),)
    net, loss = (("Trainer.step", "/job/step.py", line) for line in (2, 3))
    model = model_lines([at(5, net, MODULE)])
    assert computes_loss(at(5, loss), model, own)


def test_without_the_source_nothing_is_known() -> None:
    assert not computes_loss(at(5, NORMAL), MODEL, ())
