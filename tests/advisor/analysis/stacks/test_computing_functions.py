"""Which functions of the user's compute by themselves, by a profile of the training thread."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Event

SCRIPT, LIBRARY = "/job/train.py", "/env/site-packages"
MODULE = ("Module._call_impl", f"{LIBRARY}/torch/nn/modules/module.py", 1790)
LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 130)
TENSOR = ("Tensor.backward", f"{LIBRARY}/torch/_tensor.py", 640)
EXPRESSION = ("Tensor.__rpow__", f"{LIBRARY}/torch/_tensor.py", 1010)
FETCHER = ("_MapDatasetFetcher.fetch", f"{LIBRARY}/torch/utils/data/_utils/fetch.py", 50)
NORMAL = ("MultivariateNormal.__init__", f"{LIBRARY}/torch/distributions/multivariate_normal.py", 180)
ASLEEP = ("wait", "/usr/lib/python3.11/threading.py", 320)

Call = tuple[str, str, int]


def looks(count: int, *calls: Call) -> Any:
    """A number of stack samples; calls from the outermost one inwards."""
    frames = [
        {"function": name, "file": file, "line": at} for name, file, at in reversed((("train", SCRIPT, 90), *calls))
    ]
    user = next(frame for frame in frames if frame["file"].startswith("/job/"))
    return {"count": count, "frames": frames, "user": {**user, "text": ""}}


def norm(line: int) -> Call:
    return ("norm", "/job/layers.py", line)


def found(*rows: Any, whole: int = 400, **facts: Any) -> list[tuple[str, int, int, float]]:
    """(function, line, samples, share)"""
    rest = looks(whole - sum(row["count"] for row in rows), TENSOR)
    event = Event(FIRST_STEP_NS, "profile", 100, 0, {"outside_share": 0.0, "looks": whole, "stacks": [*rows, rest]})
    analysis = analyse(recording({0: plan(60, forward=60)}, events=(event,), facts={100: facts}))
    return [(one.function, one.line, one.samples, one.share) for one in analysis.computing_functions]


def test_a_function_is_named_with_the_line_that_is_seen_most() -> None:
    rows = looks(30, MODULE, norm(27)), looks(20, MODULE, norm(25)), looks(20, ("dist", SCRIPT, 33), NORMAL)
    assert found(*rows) == [("norm", 27, 50, 0.125), ("dist", 33, 20, 0.05)]
    assert found(looks(40, ("loss", SCRIPT, 8), EXPRESSION)) == [("loss", 8, 40, 0.1)]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(looks(80, MODULE, norm(27), LINEAR), id="a layer"),
        pytest.param(looks(80, ("closure", SCRIPT, 8), TENSOR), id="a backward pass"),
        pytest.param(looks(80, FETCHER, norm(27)), id="an item of the data set"),
        pytest.param(looks(80, norm(27), ASLEEP), id="a wait"),
    ],
)
def test_what_others_compute_is_not_its_own(row: Any) -> None:
    assert found(row) == []


def test_evaluations_gpus_and_few_samples() -> None:
    row = looks(80, norm(27))
    assert found(row) and not found(row, evaluation_sites=[{"file": "/job/layers.py", "line": 27, "count": 3}])
    assert not found(row, cuda={"devices": 1}), "there the host only queues work"
    assert not found(row, whole=99)
