"""CPU004, a rank runs far from its GPU: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_rule_cases import on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cpu004(near: float = 0.0, other: float = 1.0, **more: Any) -> Analysis:
    """An analysis in which this share of rank 1's CPUs is near its GPU."""
    return on_gpus({}, ranks={"gpu.near_cpu_share": {0: other, 1: near}}, **more)


TABLE = Table(
    "CPU004",
    cpu004,
    lines={"far": ({"near": 0.1}, {"near": 0.101})},
    false_alarms={
        "one node": {"near": 1.0},
        "not bound, two nodes": {"near": 0.5},
        "not bound, eight nodes": {"near": 0.125},
    },
    severities=(({}, "low"),),
    ranks=(1,),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cpu004_says_which_gpu_and_node() -> None:
    finding = found("CPU004", TABLE.job())
    assert "local to its GPU 1 on node 0" in finding.evidence[0].note and finding.scope.gpus == (1,)
