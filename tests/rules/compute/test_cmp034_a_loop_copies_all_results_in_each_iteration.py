"""CMP034, a loop copies all results in each iteration: its table and its advice."""

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


def cmp034(spends: float = 0.2, *, forward: float = 0.5, samples: int = 80, seen: bool = True, **more: Any) -> Analysis:
    """A rank that spends so many seconds of its second in such lines."""
    line = replace(hot(57, "generate", io=False), samples=samples)
    values = {"step.joined_s": {0: spends}} if seen else {}
    own = {0: rank(forward=forward, backward=1.0 - forward)}
    return job(own, values=values, joined_lines=(line,) if seen else (), **more)


TABLE = Table(
    "CMP034",
    cmp034,
    lines={"joining": ({"spends": 0.0501}, {"spends": 0.0499})},
    false_alarms={"too few samples of the line to name it": {"samples": 9}, "a short loop": {"spends": 0.04}},
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0501}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.joined_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_function_and_what_to_do_instead() -> None:
    finding = found("CMP034", cmp034())
    assert finding.title == "All results copied in every iteration: generate"
    assert "append" in finding.fixes[0].title and "torch.cat" in finding.fixes[0].change


def test_a_third_of_it_may_be_left() -> None:
    saving = found("CMP034", cmp034(samples=100_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.67 * 0.2)
