"""What the source of a training loop shows: lines of every step, and calls whose results are trained on."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.stacks.source.loop_source import (
    in_every_round,
    is_trained_on,
    loops_around,
    tensor_loop,
)
from rn50_advisor.advisor.model.recording import Source

LOOP = """\
for update in range(60):
    batch = collect(env, net)
    if update % 9 == 0:
        score = evaluate(net)
        net, ema = swap(net, ema)
    advantages = batch - baseline
    for idx in split(len(batch)):
        if idx:
            out = net(batch)
            (out * advantages).sum().backward()
        if idx > 5:
            loss = out.item()
    print(score, loss)
for part in collect(env, net):
    train(part)
while True:
    train(
        net(collect(env, net))
    )
"""
KEPT = (Source("/job/train.py", "", LOOP),)


@pytest.mark.parametrize(("line", "every"), [(9, True), (8, True), (12, False), (2, False), (4, False), (13, False)])
def test_a_line_runs_in_every_step_if_no_branch_of_its_own_has_it(line: int, every: bool) -> None:
    assert in_every_round(KEPT, "/job/train.py", line, {10}) == every


@pytest.mark.parametrize(
    ("line", "backward", "trained"),
    [(2, 10, True), (4, 10, False), (5, 10, False), (6, 10, True), (14, 15, True), (12, 10, False)],
)
def test_a_result_is_followed_to_the_loss(line: int, backward: int, trained: bool) -> None:
    assert is_trained_on(KEPT, "/job/train.py", line, {backward}) == trained


def test_only_a_loop_of_the_same_function_counts() -> None:
    code = "for x in data:\n    def train():\n        loss.backward()\n    train()\n"
    assert not loops_around((Source("/job/a.py", "", code),), "/job/a.py", {3})
    assert loops_around((Source("/job/a.py", "", code),), "/job/a.py", {4})
    assert not loops_around((), "/job/a.py", {4})


AVERAGES = """\
def average(model, kept, decay):
    for p, q in zip(model.parameters(), kept.parameters()):
        q.data = decay * q.data + (1 - decay) * p.data
    new = model.state_dict()
    for key in new:
        old = kept[key]
        old.copy_(decay * old
                  + (1 - decay) * new[key])
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                kept[p].mul_(decay).add_(p, alpha=1 - decay)
    total = sum(p.grad.norm() for p in model.parameters())
    for p in model.parameters():
        for value in p.grad.flatten().tolist():
            counts[int(value)] += 1
        rows = np.histogram(p.numpy())
        for other in range(9):
            other = other * p
    for loss in losses:
        total = total + loss
    model.train()
"""


@pytest.mark.parametrize(
    ("line", "does"),
    [
        pytest.param(2, "new", id="the loop itself"),
        pytest.param(3, "new", id="parameters"),
        pytest.param(4, "", id="outside"),
        pytest.param(6, "new", id="over what is called the state"),
        pytest.param(7, "new", id="a copy of a new tensor"),
        pytest.param(8, "new", id="the second line of a statement"),
        pytest.param(12, "in place", id="groups of parameters"),
        pytest.param(13, "new", id="a comprehension"),
        pytest.param(16, "", id="values of a list"),
        pytest.param(17, "", id="arrays"),
        pytest.param(19, "", id="another loop inside"),
        pytest.param(21, "", id="losses"),
        pytest.param(22, "", id="no loop"),
    ],
)
def test_what_a_loop_over_a_models_tensors_does_with_each(line: int, does: str) -> None:
    assert tensor_loop((Source("/job/a.py", "", AVERAGES),), "/job/a.py", line) == does
    assert tensor_loop((), "/job/a.py", line) == ""
