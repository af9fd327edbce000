"""LOP015, tensors are formatted as text in every step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def lop015(
    spends: float = 0.2, *, optimizer: float = 0.6, samples: int = 80, seen: bool = True, **more: Any
) -> Analysis:
    """A rank that spends so many seconds of its second formatting tensors, in its optimizer."""
    line = replace(hot(44, "step", io=False), samples=samples)
    values = {"step.text_s": {0: spends}} if seen else {}
    own = {0: rank(forward=1.0 - optimizer, backward=0.0, optimizer=optimizer)}
    return job(own, values=values, text_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP015",
    lop015,
    lines={"formatting": ({"spends": 0.0501}, {"spends": 0.0499})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a loss printed now and then": {"spends": 0.02},
    },
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0501}, "medium")),
    where=Where(SCRIPT, 44),
    not_measured={"without a profile": ({"seen": False}, ("step.text_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_fix_leaves_the_formatting_to_the_logger() -> None:
    assert "%s" in found("LOP015", lop015()).fixes[0].change
