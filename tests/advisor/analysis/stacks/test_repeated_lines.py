"""From a profile and the source to lines that compute the same in every step, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.step_measures import STEP_REPEATED_S
from rn50_advisor.advisor.model.recording import Event, Source

SCRIPT, LIBRARY = "/job/train.py", "/env/site-packages"
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1790)
WRAPPER = ("DistributedDataParallel.forward", f"{LIBRARY}/torch/nn/parallel/distributed.py", 1600)
CONTAINER = ("Sequential.forward", f"{LIBRARY}/torch/nn/modules/container.py", 250)
TENSOR = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)
FETCHER = ("_MapDatasetFetcher.fetch", f"{LIBRARY}/torch/utils/data/_utils/fetch.py", 50)
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
SOURCES = (Source(SCRIPT, "", SOURCE),)
TRAIN, FORWARD, INNER = ("train", SCRIPT, 5), ("Net.forward", SCRIPT, 12), ("normalised", SCRIPT, 16)

Call = tuple[str, str, int]


def looks(count: int, *calls: Call, **more: Any) -> Any:
    """A number of stack samples; calls from the outermost one inwards."""
    frames = [
        {"function": name, "file": file, "line": at} for name, file, at in reversed((("<module>", SCRIPT, 90), *calls))
    ]
    user = next(frame for frame in frames if frame["file"].startswith("/job/"))
    return {"count": count, "frames": frames, "user": {**user, "text": ""}, **more}


BACKWARD = looks(200, ("train", SCRIPT, 8), TENSOR)


def seen(*rows: Any, facts: dict[str, Any] | None = None, **more: Any) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    rest = looks(200 - sum(row["count"] for row in rows), TRAIN, MODULE)
    stacks = [*rows, BACKWARD, rest]
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": stacks})
    given = {"sources": SOURCES, **more}
    return analyse(recording({0: plan(60, forward=60)}, events=(event,), facts={100: facts or {}}, **given))


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
