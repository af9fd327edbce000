"""LOP013, hooks compute in every step: its table and its advice."""

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


def lop013(
    spends: float = 0.2, *, backward: float = 0.6, samples: int = 80, seen: bool = True, **more: Any
) -> Analysis:
    """A rank that spends so many seconds of its second in hooks."""
    line = replace(hot(57, "watch", io=False), samples=samples)
    values = {"step.hooks_s": {0: spends}} if seen else {}
    own = {0: rank(forward=1.0 - backward, backward=backward)}
    return job(own, values=values, hook_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP013",
    lop013,
    lines={"watching": ({"spends": 0.0801}, {"spends": 0.0799})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a norm of a little time": {"spends": 0.04},
    },
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0801}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.hooks_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_hook_its_line_and_how_often_it_should_run() -> None:
    finding = found("LOP013", lop013())
    assert finding.title == "Compute in hooks in every step: watch"
    assert "train.py:57 in watch" in finding.evidence[1].note and "% 100" in finding.fixes[0].change


def test_at_worst_a_quarter_of_it_remains() -> None:
    saving = found("LOP013", lop013(0.4, samples=10_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.3, abs=0.01)
