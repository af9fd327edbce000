"""From the source of the functions on a stack to what a loop within a forward pass computes anew in each round."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.repeated_source import called_in_loop, repeated_in_loop
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry
from rn50_advisor.advisor.model.recording import Source

FILE, LAYERS = "/job/model.py", "/job/layers.py"
DECODER = """\
import torch
from torch import nn
import torch.nn.functional as F
from layers import Attention

class Decoder(nn.Module):
    def __init__(self, width, kind):
        self.attention = Attention(width)
        self.cell = nn.GRUCell(width, width)
        self.project, self.drop = nn.Linear(width, width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.cache = None
        self.scale = 3.0

    def forward(self, words, state, memory, pad):
        {before}
        for t in range(words.size(1)):
            {line}
            state = self.cell(words[:, t], state)
        return state
"""
ATTENTION = """\
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width):
        self.keys = nn.Linear(width, width)
        self.queries = nn.Linear(width, width)
        self.kept = None

    def forward(self, query, memory, pad):
        keys = self.keys(memory)
        queries = self.queries(query)
        if self.kept is None:
            self.kept = self.keys(memory)
        mask = pad.unsqueeze(1).expand(-1, query.size(1), -1).contiguous()
        return torch.bmm(queries, keys.transpose(1, 2)) + mask
"""


def sources(line: str, before: str = "pass") -> tuple[Source, ...]:
    written = DECODER.replace("{line}", textwrap.indent(line, " " * 12).strip()).replace("{before}", before)
    return Source(FILE, "", written), Source(LAYERS, "", ATTENTION)


def line_of(source: Source, words: str) -> int:
    return next(n for n, text in enumerate(source.text.splitlines(), 1) if words in text)


def invariant(line: str, before: str = "pass") -> bool:
    made = sources(line, before)
    entry = Entry(FILE, line_of(made[0], line.splitlines()[-1].strip()), "Decoder.forward", "as a module")
    return repeated_in_loop(made, [entry], {}) is not None


@pytest.mark.parametrize(
    "line",
    [
        "keys = self.project(memory)",
        "keys = torch.tanh(self.project(memory) * self.scale)",
        "mask = torch.ones(words.size(1), words.size(1)).triu()",
        "keys = F.linear(memory, self.project.weight)",
        "if memory.size(0) > 1:\n    keys = self.project(memory)",
    ],
)
def test_what_the_loop_does_not_change_is_the_same_in_each_round(line: str) -> None:
    assert invariant(line)


@pytest.mark.parametrize(
    ("line", "before"),
    [
        pytest.param("keys = self.project(state)", "pass", id="of the state"),
        pytest.param("keys = self.project(words[:, t])", "pass", id="of the round"),
        pytest.param("keys = self.drop(memory)", "pass", id="random"),
        pytest.param("keys = F.dropout(memory)", "pass", id="random too"),
        pytest.param("if t == 0:\n    keys = self.project(memory)", "pass", id="in the first round alone"),
        pytest.param("if keys is None:\n    keys = self.project(memory)", "keys = None", id="unless it is there"),
        pytest.param("memory = self.project(memory)", "pass", id="one after the other"),
        pytest.param("memory.mul_(0.9)\nkeys = self.project(memory)", "pass", id="changed in place"),
        pytest.param("keys = unknown(memory)", "pass", id="by what is not known"),
        pytest.param("yield memory\nkeys = self.project(memory)", "pass", id="a generator"),
        pytest.param("for row in memory: pass", "pass", id="the rounds of an inner loop"),
    ],
)
def test_what_may_differ_from_round_to_round_is_not(line: str, before: str) -> None:
    assert not invariant(line, before)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("keys = self.keys(memory)", True),
        ("queries = self.queries(query)", False),
        ("self.kept = self.keys(memory)", False),
        ("return torch.bmm", False),
    ],
)
def test_in_a_module_of_another_file_what_it_is_given_decides(words: str, same: bool) -> None:
    made = sources("context = self.attention(state, memory, pad)")
    outer = Entry(FILE, line_of(made[0], "self.attention(state"), "Decoder.forward", "as a module")
    inner = Entry(LAYERS, line_of(made[1], words), "Attention.forward", "as a module")
    found = repeated_in_loop(made, [outer, inner], {})
    assert (found is not None) is same
    if found is not None:
        assert (found.file, found.line) == (LAYERS, inner.line)


LAYER = """\
from torch import nn

class Layer(nn.Module):
    def __init__(self, width):
        self.weight, self.scale = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    def forward(self, x, memory):
        norm = self.weight.norm(dim=0)
        keys = memory.softmax(dim=1)
        return x * norm + keys
"""


@pytest.mark.parametrize(
    ("call", "words", "same"),
    [
        pytest.param(
            "for layer in self.layers:\n    x = layer(x, memory)", "norm = ", False, id="weights of each layer"
        ),
        pytest.param("for layer in self.layers:\n    x = layer(x, memory)", "keys = ", True, id="what each is given"),
        pytest.param("for n in range(4):\n    x = self.layers[n](x, memory)", "norm = ", False, id="by their number"),
        pytest.param(
            "for n in range(4):\n    x = self.layer(x, memory)", "norm = ", True, id="the weights of one layer"
        ),
    ],
)
def test_each_of_several_layers_has_its_own_weights(call: str, words: str, *, same: bool) -> None:
    model = (
        "from layers import Layer\n"
        "from torch import nn\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        self.layer = Layer(width)\n"
        "        self.layers = nn.ModuleList(Layer(width) for _ in range(4))\n\n"
        "    def forward(self, x, memory):\n" + textwrap.indent(call, " " * 8) + "\n        return x\n"
    )
    made = Source(FILE, "", model), Source(LAYERS, "", LAYER)
    outer = Entry(FILE, line_of(made[0], "    x = "), "Net.forward", "as a module")
    inner = Entry(LAYERS, line_of(made[1], words), "Layer.forward", "as a module")
    assert (repeated_in_loop(made, [outer, inner], {}) is not None) is same


def test_a_training_loop_is_none_of_these() -> None:
    made = sources("keys = self.project(memory)")
    entry = Entry(FILE, line_of(made[0], "keys = self.project"), "forward", "called")
    backwards = {(FILE, "forward"): frozenset({line_of(made[0], "state = self.cell")})}
    assert repeated_in_loop(made, [entry], backwards) is None
    assert not called_in_loop(made, [entry], backwards)


@pytest.mark.parametrize(
    ("line", "again"),
    [
        ("state = self.project(state)", True),
        ("state = self.blocks[t](state)", False),
    ],
)
def test_a_layer_that_each_round_calls_again_is_told_from_one_of_several(line: str, again: bool) -> None:
    made = sources(line)
    entry = Entry(FILE, line_of(made[0], line), "Decoder.forward", "as a module")
    assert called_in_loop(made, [entry], {}) is again
    outside = Entry(FILE, line_of(made[0], "return state"), "Decoder.forward", "as a module")
    assert not called_in_loop(made, [outside], {})
