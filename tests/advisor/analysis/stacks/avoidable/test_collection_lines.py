"""From a profile to the lines that go through a whole collection, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

import profiled_steps
from profiled_steps import FETCHER, SCRIPT, profile
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis

SHUFFLE = {"kind": "permutes", "call": "random.shuffle"}
RANDOM = ("Random.shuffle", "/usr/lib/python3.11/random.py", 350)


def looks(count: int, line: int, *inner: tuple[str, str, int], collection: Any = None, **more: Any) -> Any:
    """A number of stack samples at a line of the loop and its calls, outermost first."""
    known = {"collection": collection} if collection else {}
    return profiled_steps.looks(count, ("train", SCRIPT, line), *inner, known=known, **more)


def seen(*rows: Any, whole: int = 400, facts: dict[str, Any] | None = None, **more: Any) -> Analysis:
    """Steps of 130 ms, and a profile of 400 samples."""
    stacks = [*rows, looks(whole - sum(row["count"] for row in rows), 24)]
    return analyse(recording({0: plan(60, forward=60)}, events=(profile(*stacks),), facts={100: facts or {}}, **more))


def of(*rows: Any, **more: Any) -> tuple[float, list[tuple[int, str, int]]]:
    """(ms per step, lines with the innermost function and their samples)"""
    found = seen(*rows, **more)
    lines = [(line.line, line.leaf, line.samples) for line in found.collection_lines]
    return round(1000 * found.value("step.collection_s", 0), 1), lines


def test_lines_and_their_share_of_the_step() -> None:
    rows = [looks(60, 22, RANDOM, collection=SHUFFLE), looks(20, 22, collection=SHUFFLE), looks(40, 30)]
    assert of(*rows) == (26.0, [(22, "Random.shuffle (random.py:350)", 80)])
    (line,) = seen(*rows).collection_lines
    assert line.collection == SHUFFLE and line.file == SCRIPT and line.function == "train"


def test_only_samples_that_found_it_awake_count() -> None:
    assert of(looks(80, 22, collection=SHUFFLE, awake=40))[0] == 13.0


def test_items_and_evaluations_are_reported_elsewhere() -> None:
    items = looks(80, 20, FETCHER, ("Items.__getitem__", "/job/data.py", 7), collection=SHUFFLE)
    assert of(items) == (0.0, [])
    evaluated = {"evaluation_sites": [{"file": SCRIPT, "line": 22, "count": 3}]}
    assert of(looks(80, 22, collection=SHUFFLE), facts=evaluated) == (0.0, [])


def test_waiting_is_no_work_on_a_collection() -> None:
    wait = ("wait", "/usr/lib/python3.11/threading.py", 320)
    assert of(looks(80, 22, wait, collection=SHUFFLE)) == (0.0, [])


def test_it_is_unknown_without_enough_samples() -> None:
    assert not seen(looks(40, 22, collection=SHUFFLE), whole=99).has("step.collection_s")
    assert not analyse(recording({0: plan(60)})).has("step.collection_s")


@pytest.mark.parametrize(("forward_ms", "expected"), [(60, 26.0), (600, 0.0)])
def test_on_a_gpu_no_more_than_it_had_nothing_queued(forward_ms: int, expected: float) -> None:
    cuda = {"cuda": {"devices": 1}}
    row = looks(80, 22, collection=SHUFFLE)
    assert not seen(row, facts=cuda).has("step.collection_s")
    events = [{"input_wait": 10, "forward": forward_ms, "backward": 50, "optimizer": 10, "gap": 0}] * 60
    given = seen(row, facts=cuda, gpu_steps={0: gpu_steps(events)})
    assert given.value("step.collection_s", 0) == pytest.approx(expected / 1000)
