"""From a profile and the source to lines that compute the same in every step, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import FETCHER, LIBRARY, MODULE, SCRIPT, TENSOR, Call, looks, profiled
from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import PARAMETRIZED, Analysis
from rn50_advisor.advisor.model.measures.step_measures import STEP_INVARIANT_S, STEP_REPEATED_S
from rn50_advisor.advisor.model.recording import Event, Source

WRAPPER = ("DistributedDataParallel.forward", f"{LIBRARY}/torch/nn/parallel/distributed.py", 1600)
CONTAINER = ("Sequential.forward", f"{LIBRARY}/torch/nn/modules/container.py", 250)
SOURCE = """\
import torch

def train(model, loader, graph):
    for x in loader:
        out = model(x, graph)
        weights = torch.tensor([3.0, 4.0]).rsqrt()
        loss = (out * weights).sum()
        loss.backward()

class Net:
    def forward(self, x, graph):
        graph = normalised(graph)
        return graph @ x

def normalised(graph):
    degree = graph.sum(1)
    return graph / degree
"""
TRAIN, FORWARD, INNER = ("train", SCRIPT, 5), ("Net.forward", SCRIPT, 12), ("normalised", SCRIPT, 16)


def seen(*rows: Any, **more: Any) -> Analysis:
    return profiled(*rows, source=SOURCE, model=5, backward=8, **more)


def ms(*rows: Any, **more: Any) -> float:
    """per step"""
    return round(1000 * seen(*rows, **more).value("step.repeated_s", 0), 1)


@pytest.mark.parametrize("between", [(MODULE,), (MODULE, WRAPPER, MODULE)], ids=["model", "DDP"])
def test_the_line_that_calls_the_work_is_its_place(between: tuple[Call, ...]) -> None:
    rows = (looks(50, TRAIN, *between, FORWARD, INNER), looks(30, TRAIN, *between, FORWARD, ("normalised", SCRIPT, 17)))
    assert ms(*rows) == 26.0
    (line,) = seen(*rows).repeated_lines
    assert (line.file, line.line, line.function, line.samples) == (SCRIPT, 12, "Net.forward", 80)
    assert line.leaf == "normalised (train.py:16)"


def test_a_line_of_the_loop_counts_and_one_that_uses_the_output_does_not() -> None:
    assert ms(looks(80, ("train", SCRIPT, 6))) == 26.0
    assert ms(looks(80, ("train", SCRIPT, 7))) == 0.0


@pytest.mark.parametrize(
    "row",
    [
        looks(80, TRAIN, MODULE, ("Net.forward", SCRIPT, 13)),
        looks(80, TRAIN, MODULE, CONTAINER, MODULE, FORWARD, INNER),
        looks(80, FETCHER, FORWARD, INNER),
        looks(80, TRAIN, MODULE, FORWARD, INNER, awake=0),
    ],
    ids=["of the batch", "given by torch", "an item", "asleep"],
)
def test_other_work_does_not_count(row: Any) -> None:
    assert ms(row) == 0.0


def test_without_the_source_nothing_is_known_of_it() -> None:
    row = looks(80, TRAIN, MODULE, FORWARD, INNER)
    assert not seen(row, sources=()).has(STEP_REPEATED_S) and seen(row, sources=()).repeated_lines == ()
    assert seen(row, sources=()).missing[STEP_REPEATED_S] == "no source of the job's code was kept"


MODEL = Source(
    "/job/model.py",
    "",
    """\
class Decoder:
    def __init__(self):
        self.keys = nn.Linear(4, 4)
        self.step = parametrizations.weight_norm(nn.Linear(4, 4))
    def forward(self, words, memory):
        for word in words:
            keys = self.keys(memory)
            state = self.step(word)
        return self.keys(memory)
""",
)
UPDATE = ("Optimizer.step.<locals>.wrapper", f"{LIBRARY}/torch/optim/optimizer.py", 480)
LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
WEIGHT = ("_WeightNorm.forward", f"{LIBRARY}/torch/nn/utils/parametrize.py", 300)
ON_GPU = {100: {"cuda": {"devices": 1}}}


def inside(line: int, *calls: Call) -> Any:
    return looks(80, TRAIN, MODULE, ("Decoder.forward", "/job/model.py", line), MODULE, *calls)


def looped(*rows: Any, **more: Any) -> Analysis:
    return profiled(*rows, source="", model=5, backward=8, **{"sources": (MODEL, Source(SCRIPT, "", SOURCE)), **more})


@pytest.mark.parametrize(
    ("row", "places"),
    [
        pytest.param(inside(7, LINEAR), [(7, "Linear.forward (linear.py:130)")], id="the same in each round"),
        pytest.param(inside(7), [(7, "Module._call_impl (module.py:1790)")], id="in the call of the layer"),
        pytest.param(inside(8, WEIGHT), [(8, PARAMETRIZED)], id="weights of a layer that each round calls"),
        pytest.param(inside(8, LINEAR), [], id="of the round"),
        pytest.param(inside(9, LINEAR), [], id="behind the loop"),
        pytest.param(inside(7, TENSOR), [], id="a backward pass"),
        pytest.param(looks(80, TRAIN, UPDATE, ("Decoder.forward", "/job/model.py", 7)), [], id="an update"),
        pytest.param(looks(80, FETCHER, ("Decoder.forward", "/job/model.py", 7)), [], id="an item"),
    ],
)
def test_what_each_round_of_a_loop_computes_anew(row: Any, places: list[tuple[int, str]]) -> None:
    a = looped(row)
    assert [(line.line, line.leaf) for line in a.invariant_lines] == places
    assert round(1000 * a.value(STEP_INVARIANT_S, 0), 1) == (26.0 if places else 0.0)


def test_without_a_backward_pass_nobody_knows_which_loop_trains() -> None:
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": [inside(7, LINEAR)]})
    made = recording({0: plan(60)}, events=(event,), sources=(MODEL, Source(SCRIPT, "", SOURCE)), facts={100: {}})
    assert not analyse(made).invariant_lines


def test_on_a_gpu_it_is_not_measured() -> None:
    a = looped(inside(7, LINEAR), facts=ON_GPU)
    assert not a.has(STEP_INVARIANT_S) and not a.invariant_lines
