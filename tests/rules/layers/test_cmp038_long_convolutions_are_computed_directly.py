"""CMP038, long convolutions are computed directly: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis, LongKernel
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp038(
    spent: float = 0.3, *, size: int = 250, samples: int = 20, timed: bool = True, cuda: bool = False, **more: Any
) -> Analysis:
    """A rank whose backward pass of 0.6 s spends so many seconds in depthwise convolutions with kernels of this length."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {"step.long_kernels_s": {0: spent}} if timed else {}
    line = replace(hot(30, "forward", io=False), samples=samples)
    own = {0: rank(forward=0.3, backward=0.6)}
    return job(own, values=values, **{"long_kernel": LongKernel(size, (line,)), "facts": facts, **more})


TABLE = Table(
    "CMP038",
    cmp038,
    lines={"kernels": ({"spent": 0.0636}, {"spent": 0.0634})},
    false_alarms={
        "short kernels": {"spent": 0.0, "long_kernel": None},
        "a kernel that gains too little": {"spent": 0.07, "size": 65},
        "on a GPU": {"cuda": True},
    },
    severities=(({"spent": 0.35}, "critical"), ({"spent": 0.2}, "high"), ({"spent": 0.08}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no pass was timed": ({"timed": False}, ("step.long_kernels_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_gain_grows_with_the_kernel() -> None:
    for size, least, most in ((250, 1 - 45 / 250, 1 - 25 / 250), (1000, 1 - 45 / 1000, 1 - 25 / 1000)):
        saving = found("CMP038", cmp038(size=size)).saving
        assert saving is not None
        assert saving.seconds_per_step == pytest.approx((0.3 * least / 0.91, 0.3 * most / 0.91))


def test_without_a_line_the_kernel_is_told() -> None:
    finding = found("CMP038", cmp038(samples=4))
    assert finding.fixes[0].where is None and finding.title.endswith("kernels of 250")
