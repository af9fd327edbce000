"""From counted operations to what one takes, and from a profile to the lines and functions of the user's that compute."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, SCRIPT, Call, looks, profile
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

MODEL = "/job/model.py"
TRAIN = ("train", SCRIPT, 10)
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1794)
NET = ("Net.forward", MODEL, 33)
BACKWARD = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)


FORMATTING = (
    ("forward", f"{LIBRARY}/torch/nn/modules/linear.py", 120),
    ("format_stack", "/usr/lib/python3.11/traceback.py", 213),
    ("checkcache", "/usr/lib/python3.11/linecache.py", 72),
)


def seen(
    *rows: dict[str, Any],
    operations: dict[str, int] | None = None,
    backward_nodes: dict[str, Any] | None = None,
    sources: tuple[Source, ...] = (),
) -> Analysis:
    """Steps of 130 ms with a forward pass of 10."""
    known = {"operations": operations, "backward_nodes": backward_nodes}
    facts = {name: fact for name, fact in known.items() if fact is not None}
    return analyse(recording({0: plan(60, backward=60)}, events=(profile(*rows),), facts={100: facts}, sources=sources))


def test_operations_are_those_of_a_counted_step() -> None:
    found = seen(operations={"steps": 40, "nodes": 40 * 300, "low_ns": 18_500})
    assert found.value("step.operations", 0) == 300
    assert found.value("step.operation_s", 0) == pytest.approx(18.5e-6)


@pytest.mark.parametrize("operations", [None, {"steps": 9, "nodes": 2700, "low_ns": 18_500}])
def test_a_few_steps_are_no_measurement(operations: dict[str, int] | None) -> None:
    found = seen(operations=operations)
    assert not found.by_rank("step.operations") and "too few steps" in found.missing["step.operation_s"]


def test_the_line_is_the_innermost_that_has_most_of_the_forward_pass() -> None:
    cell = [looks(30, TRAIN, MODULE, NET, MODULE, ("Cell.forward", MODEL, line)) for line in (20, 21, 22)]
    head = looks(10, TRAIN, MODULE, ("Net.forward", MODEL, 35))
    (line,) = seen(*cell, head, looks(300, TRAIN, BACKWARD)).forward_lines
    assert (line.file, line.line, line.function, line.samples) == (MODEL, 33, "Net.forward", 90)
    assert line.share == 0.9


UNROLLED = """\
class Net:
    def forward(self, x):
        state = self.first(x)
        for t in range(9):
            state = self.cell(x[:, t], state)
            for layer in self.layers:
                state = layer(state)
            out.append(self.read(state))
"""


def test_a_loop_is_named_where_no_line_of_it_has_most() -> None:
    lines = [looks(count, TRAIN, MODULE, ("Net.forward", MODEL, line)) for line, count in ((5, 50), (7, 30), (8, 20))]
    source = Source(MODEL, "", UNROLLED)
    (line,) = seen(*lines, sources=(source,)).forward_lines
    assert (line.file, line.line, line.function, line.samples) == (MODEL, 4, "Net.forward", 100)
    (line,) = seen(looks(80, TRAIN, MODULE, ("Net.forward", MODEL, 5)), sources=(source,)).forward_lines
    assert line.line == 5


def test_the_loop_that_trains_is_none() -> None:
    train = "for x in loader:\n    y = net(x)\n    z = head(y)\n    loss(z).backward()\n"
    rows = [looks(50, ("<module>", SCRIPT, line), MODULE, LINEAR) for line in (2, 3)]
    rows.append(looks(100, ("<module>", SCRIPT, 4), BACKWARD))
    rows = [{**row, "frames": row["frames"][:-1]} for row in rows]  # nothing calls the loop
    assert seen(*rows, sources=(Source(SCRIPT, "", train),)).forward_lines == ()


def test_a_model_of_a_library_is_named_by_the_line_that_calls_it() -> None:
    rows = [
        looks(50, TRAIN, MODULE, ("ResNet.forward", f"{LIBRARY}/torchvision/models/resnet.py", at)) for at in (1, 2)
    ]
    assert [(line.file, line.line) for line in seen(*rows).forward_lines] == [(SCRIPT, 10)]


def test_a_profile_without_a_forward_pass_names_no_line() -> None:
    assert seen(looks(100, TRAIN, BACKWARD)).forward_lines == ()


LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
EXPRESSION = ("Tensor.__rpow__", f"{LIBRARY}/torch/_tensor.py", 1010)
FETCHER = ("_MapDatasetFetcher.fetch", f"{LIBRARY}/torch/utils/data/_utils/fetch.py", 50)
NORMAL = ("MultivariateNormal.__init__", f"{LIBRARY}/torch/distributions/multivariate_normal.py", 180)
ASLEEP = ("wait", "/usr/lib/python3.11/threading.py", 320)


def own(count: int, *calls: Call) -> dict[str, Any]:
    """Stack samples below the loop's function, outermost call first."""
    return looks(count, ("train", SCRIPT, 90), *calls)


def norm(line: int) -> Call:
    return ("norm", "/job/layers.py", line)


def functions(*rows: Any, whole: int = 400, **facts: Any) -> list[tuple[str, int, int, float]]:
    """(function, line, samples, share)"""
    rest = own(whole - sum(row["count"] for row in rows), BACKWARD)
    analysis = analyse(recording({0: plan(60, forward=60)}, events=(profile(*rows, rest),), facts={100: facts}))
    return [(one.function, one.line, one.samples, one.share) for one in analysis.computing_functions]


def test_a_function_is_named_with_the_line_that_is_seen_most() -> None:
    rows = own(30, MODULE, norm(27)), own(20, MODULE, norm(25)), own(20, ("dist", SCRIPT, 33), NORMAL)
    assert functions(*rows) == [("norm", 27, 50, 0.125), ("dist", 33, 20, 0.05)]
    assert functions(own(40, ("loss", SCRIPT, 8), EXPRESSION)) == [("loss", 8, 40, 0.1)]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(own(80, MODULE, norm(27), LINEAR), id="a layer"),
        pytest.param(own(80, ("closure", SCRIPT, 8), BACKWARD), id="a backward pass"),
        pytest.param(own(80, FETCHER, norm(27)), id="an item of the data set"),
        pytest.param(own(80, norm(27), ASLEEP), id="a wait"),
    ],
)
def test_what_others_compute_is_not_its_own(row: Any) -> None:
    assert functions(row) == []


def test_evaluations_gpus_and_few_samples() -> None:
    row = own(80, norm(27))
    assert functions(row) and not functions(row, evaluation_sites=[{"file": "/job/layers.py", "line": 27, "count": 3}])
    assert not functions(row, cuda={"devices": 1}), "there the host only queues work"
    assert not functions(row, whole=99)


def test_formatting_is_what_samples_find_in_the_modules_that_format() -> None:
    a = seen(looks(4, TRAIN, *FORMATTING), looks(396, TRAIN))
    assert a.value("step.tracebacks_s", 0) == pytest.approx(0.01 * a.value("step.time_s"))
    assert seen(looks(400, TRAIN)).value("step.tracebacks_s", 0) == 0.0


def test_it_takes_no_more_than_the_forward_pass() -> None:
    a = seen(looks(400, TRAIN, *FORMATTING))
    assert a.value("step.tracebacks_s", 0) == pytest.approx(a.model.own[0]["forward"])


def test_few_samples_show_nothing() -> None:
    reasons = dict(seen(looks(50, TRAIN, *FORMATTING)).reasons)
    assert "no profile" in reasons["step.tracebacks_s", 0]


def test_elements_are_those_of_a_pass() -> None:
    nodes = {"passes": 2, "ns": 100, "classes": [], "searched": 6_000}
    assert seen(backward_nodes=nodes).value("step.searched_elements", 0) == 3_000
    del nodes["searched"]
    for unknown in (nodes, None):
        assert "node by node" in dict(seen(backward_nodes=unknown).reasons)["step.searched_elements", 0]
