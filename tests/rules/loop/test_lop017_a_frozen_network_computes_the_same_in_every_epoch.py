"""LOP017, a frozen network computes the same in every epoch: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis, FrozenCall
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def lop017(spends: float = 0.2, *, samples: int = 80, seen: bool = True, **more: Any) -> Analysis:
    """A rank that spends so many seconds of its second in an encoder that line 44 calls."""
    line = replace(hot(44, "encode", io=False), samples=samples)
    values = {"step.frozen_s": {0: spends}} if seen else {}
    calls = (FrozenCall(line, "TextEncoder", inputs=512, seen=508),) if seen else ()
    return job({0: rank(forward=0.5, backward=0.5)}, values=values, frozen_calls=calls, **more)


TABLE = Table(
    "LOP017",
    lop017,
    lines={"frozen": ({"spends": 0.0501}, {"spends": 0.0499})},
    false_alarms={"too few samples of the line to name it": {"samples": 9}},
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0501}, "medium")),
    where=Where(SCRIPT, 44),
    not_measured={"without a profile": ({"seen": False}, ("step.frozen_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_network_and_its_inputs_are_named() -> None:
    finding = found("LOP017", lop017())
    assert finding.title == "Frozen network computes the same in every epoch: TextEncoder"
    assert finding.evidence[-1].note.startswith("508 of the latest 512 inputs")
    assert finding.fixes[0].change.startswith("run TextEncoder once for each sample")
