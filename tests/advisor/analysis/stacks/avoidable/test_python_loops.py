"""From a profile and the source to the loops that handle tensors element by element, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import FETCHER, MODULE, SCRIPT, TENSOR, Call, looks, profiled
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Source

SOURCE = """\
def assign(targets):
    for t in targets:
        b = int(t[0])
        overlap = iou(t, anchors)
        mask[b, best] = True

def train():
    for x, targets in loader:
        out = net(x)
        wanted = assign(targets)
        for n in range(len(x)):
            seen[n, labels[n]] += 1
        loss = criterion(out, wanted)
        loss.backward()
        total += loss.item()

def iou(box, anchors):
    return box.min(anchors)
"""
CALL = ("train", SCRIPT, 10)


def seen(*rows: Any, **more: Any) -> Analysis:
    return profiled(*rows, source=SOURCE, model=9, backward=14, **more)


def ms(*rows: Any, **more: Any) -> float:
    """per step"""
    return round(1000 * seen(*rows, **more).value("step.elements_s", 0), 1)


def test_a_loop_is_one_place_whatever_its_lines_and_what_it_calls() -> None:
    rows = (
        looks(30, CALL, ("assign", SCRIPT, 3)),
        looks(20, CALL, ("assign", SCRIPT, 5)),
        looks(30, CALL, ("assign", SCRIPT, 4), ("iou", SCRIPT, 18)),
    )
    assert ms(*rows) == 26.0
    (loop,) = seen(*rows).element_lines
    assert (loop.file, loop.line, loop.function, loop.samples) == (SCRIPT, 2, "assign", 80)


def test_a_loop_beside_the_backward_pass_counts_and_the_one_around_it_does_not() -> None:
    inside = looks(80, ("train", SCRIPT, 12))
    assert ms(inside) == 26.0 and seen(inside).element_lines[0].line == 11
    assert ms(looks(80, ("train", SCRIPT, 15))) == 0.0, "loss.item() in the loop of the steps"


@pytest.mark.parametrize("part", [MODULE, TENSOR, FETCHER])
def test_what_works_on_whole_tensors_within_the_loop_does_not_count(part: Call) -> None:
    assert ms(looks(80, CALL, ("assign", SCRIPT, 4), part)) == 0.0


def test_output_items_and_evaluations_are_reported_elsewhere() -> None:
    write = ("write", "/usr/lib/python3.11/tempfile.py", 480)
    assert ms(looks(80, CALL, ("assign", SCRIPT, 3), write)) == 0.0
    assert ms(looks(80, ("train", SCRIPT, 8), FETCHER, ("assign", SCRIPT, 3))) == 0.0
    evaluated = {"evaluation_sites": [{"file": SCRIPT, "line": 10, "count": 3}]}
    assert ms(looks(80, CALL, ("assign", SCRIPT, 3)), facts={100: evaluated}) == 0.0


def test_it_is_unknown_without_a_profile() -> None:
    assert not analyse(recording({0: plan(60)})).has("step.elements_s")


@pytest.mark.parametrize(("forward_ms", "expected"), [(60, 26.0), (600, 0.0)])
def test_on_a_gpu_no_more_than_it_had_nothing_queued(forward_ms: int, expected: float) -> None:
    row = looks(80, CALL, ("assign", SCRIPT, 3))
    events = [{"input_wait": 10, "forward": forward_ms, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    assert ms(row, facts={100: {"cuda": {"devices": 1}}}, gpu_steps={0: gpu_steps(events)}) == expected


def test_it_is_unknown_without_the_source() -> None:
    row = looks(80, CALL, ("assign", SCRIPT, 3))
    assert not seen(row, sources=()).has("step.elements_s")


LOSSES = """\
import torch.nn.functional as F

class Loss:
    def forward(self, out, wanted):
        total = 0.0
        for j in range(out.size(1)):
            total = total + F.mse_loss(out[:, j], wanted[:, j])
        return total

def chain(out):
    h = out[:, 0]
    for j in range(out.size(1)):
        h = torch.tanh(h + out[:, j])
    return h.mean()

def train():
    for x, wanted in loader:
        out = net(x)
        loss = criterion(out, wanted) + chain(out)
        loss.backward()
"""
COLUMN = (("train", SCRIPT, 19), ("Loss.forward", SCRIPT, 7))
MSE = ("mse_loss", "/env/site-packages/torch/nn/functional.py", 3800)
ITERATION = ("SelectBackward0", "MseLossBackward0", "AddBackward0")


def losses(
    *rows: Any, block: tuple[str, ...] = ITERATION, times: int = 40, median_ns: int = 5000, **more: Any
) -> Analysis:
    """Where a timed backward pass has so many repetitions of these nodes, of 5 us each, behind a layer of 1 ms."""
    timed = {"count": 3 * times, "ns": 15_000 * times, "median_ns": median_ns, "written": 0, "needed": 0}
    classes = [{"name": name, **timed} for name in block]
    layer = {"name": "AddmmBackward0", "count": 3, "ns": 3_000_000, "written": 0, "needed": 0}
    names = [layer["name"], *block]
    order = "A" + times * "".join(chr(ord("B") + n) for n in range(len(block)))
    nodes = {"passes": 3, "ns": 60_000_000, "classes": [layer, *classes], "order": order, "names": names}
    given = {"source": LOSSES, "model": 18, "backward": 20, "facts": {100: {"backward_nodes": nodes}}, **more}
    return profiled(*rows, **given)


def test_a_loop_of_independent_iterations_is_what_repeats_in_the_graph() -> None:
    a = losses(looks(50, *COLUMN, MSE), looks(30, *COLUMN))
    (loop,) = a.independent_loops
    assert (loop.file, loop.line, loop.function, loop.over) == (SCRIPT, 6, "Loss.forward", "data")
    assert (loop.samples, loop.iterations, loop.nodes) == (80, 40, 3)
    assert loop.backward_s == pytest.approx(3 * 40 * 5e-6)
    assert 1000 * a.value("step.iterations_s", 0) == pytest.approx(26.0)


def test_parameters_differ_in_size() -> None:
    """Where few of the other nodes of a class may be much larger, the median tells of a loop's."""
    penalty = LOSSES.replace("for j in range(out.size(1))", "for p in self.parameters()", 1)
    penalty = penalty.replace("F.mse_loss(out[:, j], wanted[:, j])", "p.pow(2).sum()", 1)
    squares = ("PowBackward0", "SumBackward0", "AddBackward0")
    (loop,) = losses(looks(80, *COLUMN), source=penalty, block=squares, median_ns=1000).independent_loops
    assert loop.over == "squares" and loop.backward_s == pytest.approx(3 * 40 * 5e-6)
    (loop,) = losses(looks(50, *COLUMN, MSE), looks(30, *COLUMN), median_ns=1000).independent_loops
    assert loop.over == "data" and loop.backward_s == pytest.approx(3 * 40 * 1e-6)


def test_a_chain_of_iterations_is_none() -> None:
    rows = (looks(80, ("train", SCRIPT, 19), ("chain", SCRIPT, 13)),)
    a = losses(*rows, block=("SelectBackward0", "AddBackward0", "TanhBackward0"))
    assert a.independent_loops == () and a.value("step.iterations_s", 0) == 0.0


@pytest.mark.parametrize(
    ("block", "times"),
    [
        pytest.param(("ConvolutionBackward0", "ReluBackward0"), 40, id="other operations"),
        pytest.param((*ITERATION, *(f"Other{n}Backward0" for n in range(20))), 40, id="far more operations"),
        pytest.param(("AddBackward0", "MulBackward0"), 40, id="one kind in common"),
        pytest.param(ITERATION, 5, id="few iterations"),
    ],
)
def test_what_repeats_elsewhere_in_the_graph_is_another_loop(block: tuple[str, ...], times: int) -> None:
    assert losses(looks(80, *COLUMN, MSE), block=block, times=times).independent_loops == ()


def test_a_loss_that_a_module_computes_is_known_by_the_function_that_it_calls() -> None:
    source = LOSSES.replace("F.mse_loss(out", "self.one(out")
    assert losses(looks(80, *COLUMN, MSE), sources=(Source(SCRIPT, "", source),)).independent_loops[0].iterations == 40


DECODER = """\
class Decoder:
    def forward(self, words):
        scores = []
        for t in range(1, words.shape[1]):
            scores.append(self.layers(words[:, :t])[:, -1])
        return torch.stack(scores, 1)

def train():
    for words, wanted in loader:
        out = net(words)
        loss = criterion(out, wanted)
        loss.backward()
"""
LAYERS = ("TransformerEncoder.forward", "/env/site-packages/torch/nn/modules/transformer.py", 500)
MANY = tuple(f"Node{n}Backward0" for n in range(60))


def test_a_loop_of_most_of_the_forward_pass_is_the_block_of_most_of_the_graph() -> None:
    word = (("train", SCRIPT, 10), ("Decoder.forward", SCRIPT, 5), MODULE, LAYERS)
    given = {"source": DECODER, "model": 10, "backward": 12, "block": MANY}
    (loop,) = losses(looks(180, *word), **given).independent_loops
    assert (loop.line, loop.iterations, loop.nodes, loop.grows, loop.share) == (4, 40, 60, True, 0.9)
    assert loop.backward_s == pytest.approx(0.020, rel=0.01), "of three passes in 60 ms"
    assert losses(looks(150, *word), **given).independent_loops == (), "a quarter of the forward pass is elsewhere"
    assert losses(looks(180, *word), **{**given, "times": 7}).independent_loops == ()


def test_two_loops_do_not_share_the_nodes_of_one() -> None:
    """The longer one has them."""
    twice = LOSSES.replace(
        "        return total",
        "        for j in range(9):\n            total += F.mse_loss(out[:, j], 0)\n        return total",
    )
    rows = (looks(50, *COLUMN, MSE), looks(30, ("train", SCRIPT, 21), ("Loss.forward", SCRIPT, 9), MSE))
    (loop,) = losses(*rows, source=twice, model=20, backward=22).independent_loops
    assert (loop.line, loop.samples) == (6, 50)


def test_without_the_order_of_the_nodes_it_is_unknown_rather_than_none() -> None:
    rows = (looks(80, *COLUMN, MSE),)
    of_an_older_recorder = {"backward_nodes": {"passes": 3, "ns": 1000, "classes": []}}
    for facts in ({}, of_an_older_recorder):
        a = losses(*rows, facts={100: facts})
        assert a.independent_loops == () and not a.has("step.iterations_s")


def test_on_a_gpu_no_loop_is_known() -> None:
    rows = (looks(80, *COLUMN, MSE),)
    events = [{"input_wait": 10, "forward": 60, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    on_gpu = losses(*rows, facts={100: {"cuda": {"devices": 1}}}, gpu_steps={0: gpu_steps(events)})
    assert on_gpu.independent_loops == () and not on_gpu.has("step.iterations_s")


LINEAR = ("Linear.forward", "/env/site-packages/torch/nn/modules/linear.py", 130)
HEADS = """\
class Tagger:
    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], 1)

def train():
    for x, y in loader:
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
"""


@pytest.mark.parametrize("layer", [LINEAR, ("forward", LINEAR[1], 130)])
def test_layers_that_are_called_in_turn_are_known_by_their_class_or_file(layer: Call) -> None:
    """The transposed weight of each is no work. Before Python 3.12 a comprehension is a frame of its own."""
    within = (("train", SCRIPT, 7), ("Tagger.forward", SCRIPT, 3), ("Tagger.forward.<locals>.<listcomp>", SCRIPT, 3))
    rows = (looks(60, *within, MODULE, layer),)
    a = losses(*rows, block=("TBackward0", "AddmmBackward0"), source=HEADS, model=7, backward=9)
    (loop,) = a.independent_loops
    assert (loop.line, loop.function, loop.over, loop.iterations) == (3, "Tagger.forward", "modules", 40)


CHAINED = """\
def sample(x):
    for _ in range(9):
        x = x - 0.1 * net(x)
    return x

def train():
    for x, y in loader:
        out = sample(x)
        loss = criterion(out, y)
        loss.backward()
"""


def test_a_loop_whose_iterations_need_the_one_before() -> None:
    inside = looks(60, ("train", SCRIPT, 8), ("sample", SCRIPT, 3), MODULE)
    a = profiled(inside, looks(20, ("train", SCRIPT, 9)), source=CHAINED, model=8, backward=10)
    (loop,) = a.chained_loops
    assert (loop.line, loop.function, loop.samples) == (2, "sample", 60)
    assert loop.share == pytest.approx(60 / 200), "of what is not in the backward pass"
