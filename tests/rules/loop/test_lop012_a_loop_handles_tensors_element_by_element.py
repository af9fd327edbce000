"""LOP012, a loop handles tensors element by element: its table and its advice."""

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


def lop012(spends: float = 0.2, *, forward: float = 0.5, samples: int = 80, seen: bool = True, **more: Any) -> Analysis:
    """A rank that computes so many seconds of its second in loops over elements."""
    line = replace(hot(57, "smooth", io=False), samples=samples)
    values = {"step.elements_s": {0: spends}} if seen else {}
    own = {0: rank(forward=forward, backward=1.0 - forward)}
    return job(own, values=values, element_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP012",
    lop012,
    lines={"computing": ({"spends": 0.0801}, {"spends": 0.0799})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a loop over a few boxes": {"spends": 0.05},
    },
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0801}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.elements_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_function_its_loop_and_what_to_do_instead() -> None:
    finding = found("LOP012", lop012())
    assert finding.title == "Python loop over tensor elements: smooth"
    assert "train.py:57 in smooth" in finding.evidence[1].note
    assert "vectorize the loop" in finding.fixes[0].title and "torch.where" in finding.fixes[0].change


def test_at_worst_a_quarter_of_it_remains_wherever_it_is() -> None:
    """In the forward pass as far as that goes, then between the steps."""
    saving = found("LOP012", lop012(0.4, samples=10_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.3, abs=0.05)
