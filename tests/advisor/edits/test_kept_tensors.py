"""Which statements of a training loop keep tensors of each step."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from rn50_advisor.advisor.edits.kept_tensors import kept_in_steps
from rn50_advisor.advisor.edits.syntax import Code, parse_code

LOOP = """
total, losses, seen = 0, [], []
for epoch in range(9):
    outputs = []
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y) + penalty(model)
        loss.backward()
        optimizer.step()
        value = loss.item()
        rows = []
        {}
"""


def kept(text: str) -> list[str]:
    code = parse_code("train.py", dedent(text))
    assert isinstance(code, Code)
    return [code.words(node) for node in kept_in_steps(code)]


@pytest.mark.parametrize(
    "statement",
    [
        "total += loss",
        "self.total += loss / 4",
        "losses.append(loss)",
        "losses.append((epoch, loss, out))",
        "losses += [loss]",
        "outputs.append(out)",
        "outputs.extend([out])",
        "self.history.append({'loss': loss})",
        "total += loss.mean() * x.size(0)",
        "losses.append(out.logits.cpu())",
    ],
)
def test_a_loss_or_an_output_that_outlives_its_step_is_kept(statement: str) -> None:
    assert kept(LOOP.format(statement)) == [statement]


@pytest.mark.parametrize(
    "statement",
    [
        "total += loss.item()",
        "total += value",
        "losses.append(loss.detach())",
        "losses.append(float(loss))",
        "losses.append(out.argmax(1))",
        "rows.append(loss)",  # made anew in each step
        "loss += penalty(model)",
        "seen.append(y)",  # no graph
        "losses = [loss]",
        "print(loss)",
        "total += len(out)",
        "total += loss.data",
        "total += (out > 0).sum()",
        "losses.append(accuracy(out, y))",  # perhaps a number
        "total += loss.detach().mean()",
    ],
)
def test_numbers_and_what_ends_with_its_step_are_not(statement: str) -> None:
    assert kept(LOOP.format(statement)) == []


@pytest.mark.parametrize(
    "call", ["scaler.scale(loss).backward()", "accelerator.backward(loss)", "loss.mean().backward()"]
)
def test_every_form_of_the_backward_pass_counts(call: str) -> None:
    assert kept(LOOP.replace("loss.backward()", call).format("total += loss")) == ["total += loss"]


STEP = """
def train_step(x):
    loss = model(x).mean()
    loss.backward()
    return {}

for x in loader:
    result = train_step(x)
    losses.append(result)
"""


@pytest.mark.parametrize(
    ("returned", "found"), [("loss", ["losses.append(result)"]), ("loss.item()", []), ("None", [])]
)
def test_what_a_function_with_the_backward_pass_returns_counts(returned: str, found: list[str]) -> None:
    assert kept(STEP.format(returned)) == found


def test_other_loops_keep_what_they_like() -> None:
    assert kept("for x in loader:\n    out = model(x)\n    outputs.append(out)\n") == []
    assert (
        kept(LOOP.format("pass") + indent("for x in valid:\n    out = model(x)\n    outputs.append(out)\n", "")) == []
    )
