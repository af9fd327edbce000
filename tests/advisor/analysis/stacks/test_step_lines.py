"""From profiles and timed backward passes to the rows that say where a step's time goes in the job's code."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import FETCHER, LIBRARY, MODULE, SCRIPT, Call, looks, profiled
from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event

LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
DROPOUT = ("Dropout.forward", f"{LIBRARY}/torch/nn/modules/dropout.py", 70)


def block(count: int, line: int, *calls: Call, file: str = "/job/model.py") -> Any:
    return looks(count, ("train", SCRIPT, 24), MODULE, ("Block.forward", file, line), *calls)


def rows(*seen: Any, **more: Any) -> dict[str, str]:
    made: Analysis = profiled(*seen, source="", model=24, backward=26, **more)
    return dict(made.facts.get("lines", {}))


def test_the_lines_that_take_most_of_the_step_and_what_they_call() -> None:
    found = rows(block(60, 5, MODULE, LINEAR), block(45, 5, MODULE, DROPOUT), block(30, 7), block(7, 9))
    assert list(found) == ["train.py:26", "model.py:5", "train.py:24", "model.py:7"], "below 2 % a line is left out"
    assert found["train.py:26"] == "50 % of the step, 65.0 ms, train, mostly in backward pass"
    assert found["model.py:5"] == "26 % of the step, 34.1 ms, Block.forward, mostly in Linear.forward"
    assert found["model.py:7"] == "7.5 % of the step, 9.75 ms, Block.forward"


LOADER = f"{LIBRARY}/torch/utils/data/dataloader.py"
NEXT_DATA = ("_SingleProcessDataLoaderIter._next_data", LOADER, 784)
NEXT_INDEX = ("_BaseDataLoaderIter._next_index", LOADER, 715)
SAMPLER = ("PairSampler.__iter__", "/job/samplers.py", 47)
TORCHS_SAMPLER = ("BatchSampler.__iter__", f"{LIBRARY}/torch/utils/data/sampler.py", 340)


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        pytest.param((NEXT_DATA, NEXT_INDEX, SAMPLER), 47, id="the job's batch sampler"),
        pytest.param(
            (NEXT_INDEX, TORCHS_SAMPLER, SAMPLER, ("drawn", "/job/samplers.py", 12)), 12, id="what its sampler calls"
        ),
        pytest.param((("_BaseDataLoaderIter.__init__", LOADER, 689), SAMPLER), 47, id="an order drawn at once"),
        pytest.param((NEXT_DATA, NEXT_INDEX, TORCHS_SAMPLER), None, id="torch's own sampler"),
        pytest.param((NEXT_DATA, FETCHER, ("Stream.__iter__", "/job/data.py", 9)), None, id="samples of a stream"),
        pytest.param(
            (("_BaseDataLoaderIter.__init__", LOADER, 680), ("Set.__len__", "/job/data.py", 9)), None, id="a length"
        ),
    ],
)
def test_lines_that_draw_indices(calls: tuple[Call, ...], line: int | None) -> None:
    made = profiled(looks(60, ("train", SCRIPT, 22), *calls), source="", model=24, backward=26)
    assert [found.line for found in made.drawing_lines] == ([] if line is None else [line])


def test_a_line_that_calls_many_things_says_none() -> None:
    names = [("forward", f"{LIBRARY}/torch/nn/modules/{name}.py", 7) for name in ("linear", "dropout")]
    both = [(f"{name}.{call[0]}", *call[1:]) for name, call in zip(("A", "B"), names, strict=True)]
    found = rows(*(block(60, 5, call) for call in both))
    assert found["model.py:5"].endswith("Block.forward")


def test_files_of_the_same_name_are_told_apart() -> None:
    found = rows(block(60, 5), block(70, 5, file="/job/parts/model.py"))
    assert {"/job/model.py:5", "/job/parts/model.py:5"} <= set(found)


def test_few_samples_show_nothing() -> None:
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 20, "stacks": [block(20, 5)]})
    assert "lines" not in analyse(recording({0: plan(60)}, events=(event,), facts={100: {}})).facts


def test_a_profile_of_a_part_of_a_step_shows_nothing() -> None:
    stacks = [block(200, 5), block(200, 7)]
    for forward_ms, known in ((500, True), (900, False)):
        event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": stacks})
        made = recording({0: plan(60, forward=forward_ms)}, events=(event,), facts={100: {}})
        assert ("lines" in analyse(made).facts) is known


def test_times_on_a_gpu_are_the_hosts() -> None:
    found = rows(block(200, 5), facts={100: {"cuda": {"devices": 1}}})
    assert "of the host's time" in found["model.py:5"]


def test_classes_of_the_backward_pass_that_take_time() -> None:
    classes = [
        {"name": name, "count": 3, "ns": ns, "written": 0, "needed": 0}
        for name, ns in (("AddmmBackward0", 600_000), ("SelectBackward0", 400_000), ("ViewBackward0", 1_000))
    ]
    timed = {"passes": 3, "ns": 1_001_000, "classes": classes}
    found = rows(block(200, 5), facts={100: {"backward_nodes": timed}})
    assert list(found)[-2:] == ["AddmmBackward0", "SelectBackward0"]
    assert found["AddmmBackward0"].endswith("in the backward pass")
