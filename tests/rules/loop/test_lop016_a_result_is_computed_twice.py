"""LOP016, a result is computed twice: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis, SecondComputation
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def lop016(
    spends: float = 0.2, *, samples: int = 80, seen: bool = True, recorded: bool = False, **more: Any
) -> Analysis:
    """A rank that spends so many seconds of its second on what line 41 has computed."""
    line = replace(hot(44, "step", io=False), samples=samples)
    values = {"step.second_s": {0: spends}} if seen else {}
    again = (SecondComputation(line, earlier=41, recorded=recorded),) if seen else ()
    own = {0: rank(forward=0.5, backward=0.5)}
    return job(own, values=values, second_computations=again, **more)


TABLE = Table(
    "LOP016",
    lop016,
    lines={"second": ({"spends": 0.0501}, {"spends": 0.0499})},
    false_alarms={"too few samples of the line to name it": {"samples": 9}},
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0501}, "medium")),
    where=Where(SCRIPT, 44),
    not_measured={"without a profile": ({"seen": False}, ("step.second_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_both_lines_are_named() -> None:
    finding = found("LOP016", lop016())
    assert finding.evidence[-1].note == "line 41 computes the same"
    assert (
        finding.fixes[0].change
        == "keep the result of line 41 and use it here, with .detach() where it must not be trained"
    )


def test_a_second_backward_pass_comes_off_as_well_at_best() -> None:
    once, both = found("LOP016", lop016()).saving, found("LOP016", lop016(recorded=True)).saving
    assert once is not None and both is not None
    assert both.seconds_per_step[0] == once.seconds_per_step[0]
    assert both.seconds_per_step[1] > 2.5 * once.seconds_per_step[1]
