"""CMP035, linear layers compute repeated rows: its table and its advice."""

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


def cmp035(
    repeated: float = 0.2, *, samples: int = 20, timed: bool = True, cuda: bool = False, **more: Any
) -> Analysis:
    """A rank whose backward pass spends so many seconds of its second in linear layers on repeated rows."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {"step.repeated_rows_s": {0: repeated}} if timed else {}
    lines = (replace(hot(30, "forward", io=False), samples=samples),)
    own = {0: rank(forward=0.3, backward=0.6)}
    return job(own, values=values, **{"repeating_lines": lines, "facts": facts, **more})


TABLE = Table(
    "CMP035",
    cmp035,
    lines={"repeated": ({"repeated": 0.0353}, {"repeated": 0.0351})},
    false_alarms={
        "each row is there once": {"repeated": 0.0},
        "no line joins rows": {"repeating_lines": ()},
        "too few samples of the line": {"samples": 4},
        "on a GPU": {"cuda": True},
    },
    severities=(({"repeated": 0.2}, "critical"), ({"repeated": 0.1}, "high"), ({"repeated": 0.0353}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no pass was timed": ({"timed": False}, ("step.repeated_rows_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_gain_includes_a_part_of_the_forward_pass() -> None:
    saving = found("CMP035", cmp035()).saving
    assert saving is not None
    assert saving.seconds_per_step == pytest.approx((0.2 * 1.2 / 0.91, 0.2 * 1.9 / 0.91))
