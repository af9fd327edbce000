"""From a profile and the source to the loops that handle tensors element by element, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Source

SCRIPT, LIBRARY = "/job/train.py", "/env/site-packages"
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1790)
TENSOR = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)
FETCHER = ("_MapDatasetFetcher.fetch", f"{LIBRARY}/torch/utils/data/_utils/fetch.py", 50)
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
SOURCES = (Source(SCRIPT, "", SOURCE),)
CALL = ("train", SCRIPT, 10)

Call = tuple[str, str, int]


def looks(count: int, *calls: Call, **more: Any) -> Any:
    """A number of stack samples; calls from the outermost one inwards."""
    frames = [
        {"function": name, "file": file, "line": at} for name, file, at in reversed((("<module>", SCRIPT, 90), *calls))
    ]
    user = next(frame for frame in frames if frame["file"].startswith("/job/"))
    return {"count": count, "frames": frames, "user": {**user, "text": ""}, **more}


BACKWARD = looks(200, ("train", SCRIPT, 14), TENSOR)


def seen(*rows: Any, facts: dict[str, Any] | None = None, **more: Any) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    rest = looks(200 - sum(row["count"] for row in rows), ("train", SCRIPT, 9), MODULE)
    event = Event(
        FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": 400, "stacks": [*rows, BACKWARD, rest]}
    )
    given = {"sources": SOURCES, **more}
    return analyse(recording({0: plan(60, forward=60)}, events=(event,), facts={100: facts or {}}, **given))


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
    assert ms(looks(80, CALL, ("assign", SCRIPT, 3)), facts=evaluated) == 0.0


def test_it_is_unknown_without_a_profile() -> None:
    assert not analyse(recording({0: plan(60)})).has("step.elements_s")


@pytest.mark.parametrize(("forward_ms", "expected"), [(60, 26.0), (600, 0.0)])
def test_on_a_gpu_no_more_than_it_had_nothing_queued(forward_ms: int, expected: float) -> None:
    row = looks(80, CALL, ("assign", SCRIPT, 3))
    events = [{"input_wait": 10, "forward": forward_ms, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    assert ms(row, facts={"cuda": {"devices": 1}}, gpu_steps={0: gpu_steps(events)}) == expected
