"""LOP018, a loop computes its prefix again: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def lop018(spends: float = 0.2, *, forward: float = 0.5, samples: int = 80, seen: bool = True, **more: Any) -> Analysis:
    """A rank that spends so many seconds of its second in such calls."""
    line = replace(hot(57, "sample", io=False), samples=samples)
    values = {"step.prefix_s": {0: spends}} if seen else {}
    own = {0: rank(forward=forward, backward=1.0 - forward)}
    return job(own, values=values, prefix_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP018",
    lop018,
    lines={"computing": ({"spends": 0.0601}, {"spends": 0.0599})},
    false_alarms={"too few samples of the line to name it": {"samples": 9}, "a short loop": {"spends": 0.05}},
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0601}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.prefix_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_function_and_what_to_hand_on() -> None:
    finding = found("LOP018", lop018())
    assert finding.title == "Prefix computed again in every iteration: sample"
    assert "past_key_values" in finding.fixes[0].change
