"""From timed nodes to what indexing costs, and from a profile and the source to its lines."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.model.analysis import Analysis

SOURCE = """\
class Net:
    def forward(self, x):
        e = self.inp(x)
        for t in range(e.size(1)):
            h = self.cell(e[:, t], h)
            out[:, t] = h
        return self.head(out[order])

def train():
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
"""
CALL, FORWARD = ("train", SCRIPT, 11), ("Net.forward", SCRIPT, 5)


def node(name: str, ns: int, written: int = 0, needed: int = 0) -> dict[str, Any]:
    return {"name": name, "count": 10, "ns": ns, "written": written, "needed": needed}


def seen(*rows: Any, nodes: tuple[Any, ...] = (), timed: bool = True, **more: Any) -> Analysis:
    facts = {"backward_nodes": {"passes": 3, "ns": 1000, "classes": list(nodes)}} if timed else {}
    return profiled(*rows, source=SOURCE, model=11, backward=13, **{"facts": {100: facts}, **more})


def test_what_is_written_beyond_once_counts() -> None:
    few = seen(nodes=(node("SelectBackward0", 400, 1000, 100), node("AddmmBackward0", 500)))
    many = seen(nodes=(node("SelectBackward0", 400, 1000, 100), node("torch::autograd::CopySlices", 200, 1000, 500)))
    assert few.value("step.parts_s", 0) > 0
    assert many.value("step.parts_s", 0) / few.value("step.parts_s", 0) == pytest.approx(460 / 360)
    assert few.value("step.rows_s", 0) == 0


def test_a_part_that_is_taken_once_costs_nothing() -> None:
    assert seen(nodes=(node("SliceBackward0", 400, 100, 100),)).value("step.parts_s", 0) == 0


def test_rows_are_nodes_of_indexing() -> None:
    a = seen(nodes=(node("IndexBackward0", 300), node("IndexSelectBackward0", 300)))
    b = seen(nodes=(node("IndexBackward0", 600),))
    assert 2 * a.value("step.rows_s", 0) == pytest.approx(b.value("step.rows_s", 0))


def test_without_a_timed_pass_it_is_not_known() -> None:
    a = seen(looks(60, CALL, MODULE, FORWARD), timed=False)
    assert (a.part_lines, a.row_lines) == ((), ()), "nobody asks for lines then"
    assert a.get("step.parts_s", 0) is None
    assert "node by node" in dict(a.reasons)["step.parts_s", 0]


def test_the_loop_and_the_line_that_indexes() -> None:
    cell = ("GRUCell.forward", "/env/site-packages/torch/nn/modules/rnn.py", 1400)
    a = seen(looks(60, CALL, MODULE, FORWARD, MODULE, cell), looks(20, CALL, MODULE, ("Net.forward", SCRIPT, 7)))
    (parts,), (rows,) = a.part_lines, a.row_lines
    assert (parts.line, parts.function, parts.samples) == (5, "Net.forward", 60)
    assert (rows.line, rows.samples) == (7, 20)


def test_parametrizations_have_their_nodes() -> None:
    a = seen(nodes=(node("LinalgMatrixExpBackward0", 400), node("MmBackward0", 500)))
    assert a.value("step.parametrized_s", 0) == pytest.approx(0.4 * a.model.own[0]["backward"])


@pytest.mark.parametrize(
    ("layers", "times"),
    [
        pytest.param({"_Orthogonal": 2, "Linear": 2}, 10 / 3 / 2, id="a layer of torch.nn.utils.parametrizations"),
        pytest.param({"Linear": 2}, None, id="torch.nn.utils.weight_norm, or the model's own"),
    ],
)
def test_how_often_a_pass_computes_each_parametrized_weight(layers: dict[str, int], times: float | None) -> None:
    timed = {"passes": 3, "ns": 1000, "classes": [node("LinalgMatrixExpBackward0", 400)]}
    a = seen(facts={100: {"backward_nodes": timed, "model": {"layers": layers}}})
    assert a.get("step.weight_computations", 0) == (times and pytest.approx(times))


def test_positions_that_a_loss_ignores_have_their_share_of_the_pass() -> None:
    timed = {"passes": 3, "ns": 1000, "classes": [], "ignored_ns": 250, "loss_rows": [40, 30]}
    a = seen(facts={100: {"backward_nodes": timed}})
    assert a.value("step.ignored_s", 0) == pytest.approx(0.25 * a.model.own[0]["backward"])


def test_an_older_recorder_did_not_look_for_them() -> None:
    assert "older" in dict(seen().reasons)["step.ignored_s", 0]


PAIRS = """\
class Net:
    def forward(self, x):
        a = x.repeat(1, 9, 1)
        pairs = torch.cat([a, x.expand(9, 9, 4)], -1)
        return self.second(self.mlp(pairs))

def train():
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
"""


def test_the_line_that_calls_a_linear_layer_on_joined_rows() -> None:
    linear = ("Linear.forward", "/env/site-packages/torch/nn/modules/linear.py", 134)
    rows = (looks(30, ("train", SCRIPT, 9), MODULE, ("Net.forward", SCRIPT, 5), MODULE, linear),)
    timed = {"passes": 3, "ns": 1000, "classes": [], "repeated_rows_ns": 250}
    a = profiled(*rows, source=PAIRS, model=9, backward=11, facts={100: {"backward_nodes": timed}})
    assert a.value("step.repeated_rows_s", 0) == pytest.approx(0.25 * a.model.own[0]["backward"])
    (line,) = a.repeating_lines
    assert (line.line, line.function, line.samples) == (5, "Net.forward", 30)
    unseen = profiled(
        *rows, source=PAIRS, model=9, backward=11, facts={100: {"backward_nodes": {**timed, "repeated_rows_ns": 0}}}
    )
    assert unseen.repeating_lines == ()


SELECTING = """\
class Net:
    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head(h)

def train():
    for x, y in loader:
        out = net(x)
        loss = criterion(out[:, -1], y)
        loss.backward()
"""


def test_rows_that_a_selection_leaves_out_have_their_share_and_the_line_that_selects() -> None:
    timed = {"passes": 3, "ns": 1000, "classes": [], "unselected_ns": 250}
    call, head = ("train", SCRIPT, 8), ("Net.forward", SCRIPT, 4)
    rows = looks(60, call, MODULE, head, MODULE), looks(9, ("train", SCRIPT, 9))
    a = profiled(*rows, source=SELECTING, model=8, backward=10, facts={100: {"backward_nodes": timed}})
    assert a.value("step.unselected_s", 0) == pytest.approx(0.25 * a.model.own[0]["backward"])
    (line,) = a.selecting_lines
    assert (line.line, line.function) == (9, "train")
    recurrent = ("GRU.forward", "/env/site-packages/torch/nn/modules/rnn.py", 1400)
    mixing = profiled(
        *rows, looks(70, call, MODULE, ("Net.forward", SCRIPT, 3), MODULE, recurrent),
        source=SELECTING, model=8, backward=10, facts={100: {"backward_nodes": timed}},
    )  # fmt: skip
    assert mixing.selecting_lines[0].samples < line.samples, (
        "layers that mix rows are not what computes them for nothing"
    )
    none = profiled(
        *rows, source=SELECTING, model=8, backward=10, facts={100: {"backward_nodes": {**timed, "unselected_ns": 0}}}
    )
    assert none.selecting_lines == (), "nobody asks for lines then"
