"""COM004, unused-parameter search is on for nothing: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_table import Table
from table_checks import Check, checks


def com004(searched: float = 40.0, used: float = 0.0, *, other: float = 40.0, **more: Any) -> Analysis:
    values = {"ddp.searched": {0: searched, 1: other}, "ddp.with_unused": {0: 0.0, 1: used}}
    models = [{"find_unused_parameters": 1, "file": SCRIPT, "line": 51}] if searched else [{"file": SCRIPT, "line": 51}]
    return job({0: rank(), 1: rank()}, **{"values": values, "facts": {"0": {"ddp": models}}, **more})


TABLE = Table(
    "COM004",
    com004,
    lines={"iterations": ({"searched": 20.0}, {"searched": 19.0})},
    false_alarms={
        "a graph that leaves parts out": {"used": 1.0},
        "DDP does not search": {"searched": 0.0, "other": 0.0},
        "one rank was checked too rarely": {"other": 3.0},
    },
    severities=(({}, "low"),),
    where=Where(SCRIPT, 51),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
