"""From a recorder's facts about frozen networks, loaders and a profile to the time that their repeated inputs take."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, MODULE, SCRIPT, profiled
from profiled_steps import looks as looks_at
from rn50_advisor.advisor.model.analysis import Analysis

SOURCE = "def train():\n    pass\n"
FORWARD = ("TextEncoder.forward", "/job/model.py", 7)
LINEAR = ("Linear.forward", f"{LIBRARY}/torch/nn/modules/linear.py", 120)
CONTEXT = ("decorate_context", f"{LIBRARY}/torch/utils/_contextlib.py", 116)
CALL = (("train", SCRIPT, 6), CONTEXT, ("encode", SCRIPT, 20), MODULE)
NETWORK = {
    "class": "TextEncoder",
    "forward": "/job/model.py:TextEncoder.forward",
    "file": SCRIPT,
    "line": 20,
    "calls": 40,
    "rows": 256,
    "seen": 255,
    "different": 512,
    "alike": 0.0,
    "repeats": True,
}
LOADERS = [
    {"id": 0, "training": True, "dataset": {"length": 512}},
    {"id": 1, "training": False, "dataset": {"length": 64}},
]


def seen(*calls: Any, text: str = "", loaders: Any = LOADERS, rank: Any = None, **network: Any) -> Analysis:
    row = looks_at(80, *(calls or (*CALL, FORWARD, LINEAR)), text=text)
    facts = {"loaders": loaders, "frozen_networks": [{**NETWORK, **network}], **(rank or {})}
    return profiled(row, source=SOURCE, model=7, backward=9, facts={100: facts})


def test_the_time_and_the_line_of_a_frozen_network() -> None:
    a = seen()
    (found,) = a.frozen_calls
    assert (found.line.file, found.line.line, found.line.function, found.line.samples) == (SCRIPT, 20, "encode", 80)
    assert (found.network, found.inputs, found.seen) == ("TextEncoder", 256, 255)
    assert a.value("step.frozen_s", 0) == pytest.approx(0.2 * 0.130)


def test_before_python_311_frames_have_no_class() -> None:
    assert seen(*CALL, ("forward", "/job/model.py", 7), LINEAR).frozen_calls


@pytest.mark.parametrize(
    "changed",
    [
        {"repeats": False},
        {"different": 600, "loaders": LOADERS[:1]},
        {"different": 1024},
        {"different": 200},
        {"alike": 0.2},
        {"loaders": []},
        {"loaders": [{"id": 0, "training": True, "dataset": {"length": None}}]},
        {"loaders": [{"id": 0, "training": False, "dataset": {"length": 512}}]},
        {"rank": {"cuda": {"index": 0}}},
    ],
    ids=[
        "inputs change",
        "more than the samples",
        "two variants of each sample",
        "before the first epoch ends",
        "constant inputs",
        "no loader",
        "a stream",
        "no training loader",
        "on a GPU",
    ],
)
def test_without_evidence_nothing_is_said(changed: dict[str, Any]) -> None:
    a = seen(**changed)
    assert a.frozen_calls == () and not (a.has("step.frozen_s") and a.value("step.frozen_s", 0))


def test_each_rank_sees_its_part_of_the_samples() -> None:
    assert seen(different=140, rank={"world_size": 2}).frozen_calls


@pytest.mark.parametrize(
    "calls",
    [
        (*CALL, ("Head.forward", "/job/model.py", 30), LINEAR),
        (*CALL[:-1], FORWARD, LINEAR),
        (("train", SCRIPT, 6), MODULE, FORWARD, LINEAR),
    ],
    ids=["another network", "no call of a module", "another line"],
)
def test_only_its_own_calls_count(calls: Any) -> None:
    a = seen(*calls)
    assert a.frozen_calls == () and a.value("step.frozen_s", 0) == 0.0


@pytest.mark.parametrize(("text", "found"), [("z = encoder(x)", 1), ("logits = head(encoder(x))", 0)])
def test_two_containers_of_torch_on_a_line_are_not_told_apart(text: str, found: int) -> None:
    file = f"{LIBRARY}/torch/nn/modules/container.py"
    a = seen(*CALL, ("Sequential.forward", file, 240), LINEAR, text=text, forward=f"{file}:Sequential.forward")
    assert len(a.frozen_calls) == found
