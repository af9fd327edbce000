"""LOP002, logging stops the training: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, hot, job, rank
from rule_table import Table, waits, warm
from table_checks import Check, checks


def lop002(spent: float = 0.2, output: float = 0.9, **more: Any) -> Analysis:
    lines = (hot(70, "fit", io=False, samples=1), hot(71, "log_step", io=True))
    own = {0: rank(gap=spent), 1: rank(gap=spent)}
    return job(own, **{"values": {"gap.io_share": output}, "hot_lines": lines, **more})


TABLE = Table(
    "LOP002",
    lop002,
    lines={"gap": ({"spent": 0.05}, {"spent": 0.0499}), "output": ({"output": 0.5}, {"output": 0.499})},
    false_alarms={"the loop computes there": {"output": 0.2}},
    severities=waits("spent"),
    where=Where(SCRIPT, 71),
    best=({"spent": 0.2}, warm(1 / 0.8)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
