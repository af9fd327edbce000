"""LOP011, the step computes outside torch: its table and its advice."""

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


def lop011(spends: float = 0.2, *, forward: float = 0.5, samples: int = 80, seen: bool = True, **more: Any) -> Analysis:
    """A rank that computes so many seconds of its second outside torch."""
    line = replace(hot(57, "smooth", io=False), samples=samples)
    values = {"step.foreign_s": {0: spends}} if seen else {}
    own = {0: rank(forward=forward, backward=1.0 - forward)}
    return job(own, values=values, foreign_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP011",
    lop011,
    lines={"computing": ({"spends": 0.1001}, {"spends": 0.0999})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a mask or an assignment of a little time": {"spends": 0.05},
    },
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.1001}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.foreign_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_function_its_line_and_what_to_do_instead() -> None:
    finding = found("LOP011", lop011())
    assert finding.title == "Non-PyTorch compute inside the step: smooth"
    assert "train.py:57 in smooth" in finding.evidence[1].note
    assert "with tensors" in finding.fixes[0].title and "data set" in finding.fixes[0].change


def test_at_worst_half_of_it_remains_wherever_it_is() -> None:
    """In the forward pass as far as that goes, then in hooks of the backward pass."""
    saving = found("LOP011", lop011(0.4, forward=0.1, samples=10_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.2, abs=0.05)
