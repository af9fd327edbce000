"""From the source: which line takes some rows of what a call has returned."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.stacks.source.selected_source import selecting_line
from rn50_advisor.advisor.model.recording import Source

SCRIPT = "/job/train.py"


def line_of(text: str, call: int) -> int | None:
    return selecting_line((Source(SCRIPT, "", text),), SCRIPT, call)


# text, the line of the call, the line that selects
SELECTED = {
    "in one expression": ("y = self.head(h)[:, -1]\n", 1, 1),
    "a mask later": ("out = model(x)\nloss = f(out[mask], y[mask])\n", 1, 2),
    "the last of them": ("out = model(x)\nk = 3\nloss = f(out[-k:], y)\n", 1, 3),
    "a model's output": ("out = model(ids)\nlast = out.logits[:, -1]\n", 1, 2),
    "a dict's": ("out = model(ids)\nlast = out['logits'][:, -1]\n", 1, 2),
    "a shape between": ("out = self.head(h).squeeze(-1)[:, -1]\n", 1, 1),
    "a method": ("out = self.head(h)\nreturn_value = out.index_select(1, chosen)\n", 1, 2),
    "several lines": ("y = self.head(\n    h,\n)[:, 0]\n", 2, 1),
    "a function": ("def forward(self, x):\n    h, _ = self.rnn(x)\n    h = self.head(h)\n    return h[:, -1]\n", 3, 4),
}
NOT_SELECTED = {
    "before the layer": ("h = self.encoder(x)\ny = self.head(h[:, -1])\n", 1),
    "states of a recurrent layer": ("h, _ = self.rnn(x)\ny = h[:, -1]\n", 1),
    "an item of a tuple": ("h = self.encoder(x)[0]\ny = f(h)\n", 1),
    "the last item": ("features = self.backbone(x)\ny = features[-1]\n", 1),
    "a key": ("out = model(x)\ny = out['boxes']\n", 1),
    "another call's": ("a = model(x)\nb = other(y)\nc = b[:, 0]\n", 1),
    "set, not taken": ("out = model(x)\nout[:, 0] = 0\n", 1),
    "before the call": ("y = out[:, 0]\nout = model(x)\n", 2),
    "no call": ("x = 1\n", 1),
}


@pytest.mark.parametrize(("text", "call", "line"), SELECTED.values(), ids=SELECTED)
def test_the_line_that_takes_rows(text: str, call: int, line: int) -> None:
    assert line_of(text, call) == line


@pytest.mark.parametrize(("text", "call"), NOT_SELECTED.values(), ids=NOT_SELECTED)
def test_what_takes_no_rows_of_a_call(text: str, call: int) -> None:
    assert line_of(text, call) is None


def test_without_the_source_there_is_no_line() -> None:
    assert selecting_line((), SCRIPT, 1) is None
