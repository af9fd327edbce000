"""CMP030, pooling is slow in channels-first format on the CPU: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.trials.knobs import Knob, knob_of
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def cmp030(
    pools: float = 0.3,
    *,
    convolves: float = 0.4,
    depthwise: float = 0.0,
    pixels: float = 0.0,
    first: float | None = 1.0,
    norm: str = "BatchNorm2d",
    gpu: bool = False,
    seen: bool = True,
    **more: Any,
) -> Analysis:
    """A rank that spends so many seconds of a step of one on pooling, and on convolutions, the depthwise ones among them."""
    values: dict[str, Any] = {} if first is None else {"layout.channels_first": {0: first}}
    if seen:
        values |= {"step.pooling_s": {0: pools}, "step.convolutions_s": {0: convolves}}
        values |= {"step.depthwise_s": {0: depthwise}, "step.pixelwise_s": {0: pixels}}
    facts = {"0": {"model": {"layers": {"Conv2d": 3, norm: 2}}, **({"cuda": {"index": 0}} if gpu else {})}}
    return job({0: rank(forward=0.5, backward=0.5)}, values=values, facts=facts, **more)


TABLE = Table(
    "CMP030",
    cmp030,
    lines={
        "pooling": ({"pools": 0.0501, "convolves": 0.0}, {"pools": 0.0499, "convolves": 0.0}),
        "sure": ({"pools": 0.1001, "convolves": 0.25}, {"pools": 0.0999, "convolves": 0.25}),
    },
    false_alarms={
        "channels-last already": {"first": 0.0},
        "no convolution was seen": {"first": None},
        "convolutions could lose as much": {"pools": 0.12},
        "group norms, which become slower": {"norm": "GroupNorm"},
        "a GPU": {"gpu": True},
    },
    not_measured={"nobody took a profile": ({"seen": False}, ("step.pooling_s", "step.convolutions_s"))},
    severities=(
        ({}, "high"),
        ({"pools": 0.15}, "medium"),
        ({"pools": 0.055, "convolves": 0.0}, "low"),
    ),
    best=({"pools": 0.4}, warm(1 / (1 - 0.38 - 0.06))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp030_takes_what_convolutions_could_lose_off() -> None:
    saving = found("CMP030", cmp030()).saving
    assert saving is not None and saving.speedup[0] == pytest.approx(1 / (1 - 0.21 + 0.08))


def test_cmp030_knows_depthwise_convolutions_from_others() -> None:
    a = cmp030(0.0, convolves=0.45, depthwise=0.4)
    finding = found("CMP030", a)
    assert finding.title == "Slow depthwise convolutions: channels-first (NCHW) images on the CPU"
    assert finding.saving is not None and finding.saving.speedup[0] == pytest.approx(1 / (1 - 0.12 + 0.01))
    assert [evidence.metric for evidence in finding.evidence] == ["step.depthwise_s", "step.convolutions_s"]
    assert found("CMP030", cmp030(0.0, convolves=0.45, depthwise=0.4, pixels=0.05)).saving.speedup[0] == pytest.approx(
        1 / 0.88
    )  # type: ignore[union-attr]
    both = found("CMP030", cmp030(0.2, convolves=0.3, depthwise=0.2))
    assert both.title.startswith("Slow pooling and depthwise convolutions: ")


def test_cmp030_can_be_tried() -> None:
    (fix,) = found("CMP030", cmp030()).fixes
    assert fix.change == "model = model.to(memory_format=torch.channels_last)" and isinstance(knob_of(fix), Knob)
