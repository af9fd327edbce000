"""From a profile and the source to the loops that handle tensors element by element, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import FETCHER, MODULE, SCRIPT, TENSOR, Call, looks, profiled
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis

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
