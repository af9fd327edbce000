"""CMP036, Fourier transforms have awkward lengths: its table and its advice."""

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


def cmp036(
    transforms: float = 0.2, *, samples: int = 20, timed: bool = True, cuda: bool = False, **more: Any
) -> Analysis:
    """A rank whose backward pass spends so many seconds of its second in Fourier transforms of awkward lengths."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {"step.transforms_s": {0: transforms}} if timed else {}
    lines = (replace(hot(30, "forward", io=False), samples=samples, leaf="4999"),)
    own = {0: rank(forward=0.3, backward=0.6)}
    return job(own, values=values, **{"transforming_lines": lines, "facts": facts, **more})


TABLE = Table(
    "CMP036",
    cmp036,
    lines={"transforms": ({"transforms": 0.0438}, {"transforms": 0.0435})},
    false_alarms={
        "fast lengths": {"transforms": 0.0},
        "no line calls one": {"transforming_lines": ()},
        "too few samples of the line": {"samples": 4},
        "on a GPU": {"cuda": True},
    },
    severities=(({"transforms": 0.25}, "critical"), ({"transforms": 0.12}, "high"), ({"transforms": 0.0438}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no pass was timed": ({"timed": False}, ("step.transforms_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_gain_includes_a_part_of_the_forward_pass() -> None:
    saving = found("CMP036", cmp036()).saving
    assert saving is not None
    assert saving.seconds_per_step == pytest.approx((0.2 * 0.8 / 0.91, 0.2 * 1.7 / 0.91))


@pytest.mark.parametrize(("length", "fast"), [(4999, "5000"), (8191, "8192"), (127, "128"), (1000, "1000")])
def test_the_next_length_with_small_factors(length: int, fast: str) -> None:
    line = replace(hot(30, "forward", io=False), samples=20, leaf=str(length))
    assert found("CMP036", cmp036(transforming_lines=(line,))).fixes[0].title.startswith(f"pad to {fast}, ")
