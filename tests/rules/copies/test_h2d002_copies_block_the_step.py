"""H2D002, copies block the step: its table and its advice."""

from __future__ import annotations

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rule_cases import SCRIPT
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "H2D002",
    pace_jobs.h2d002,
    lines={"exposed": ({"share": 0.02, "gap": 0.0}, {"share": 0.0199, "gap": 0.0})},
    false_alarms={"small batches": {"share": 0.001, "gap": 0.0}, "no copy waits": {"share": 0.0}},
    severities=(
        ({"share": 0.25}, "critical"),
        ({}, "high"),
        ({"share": 0.05, "gap": 0.0}, "medium"),
        ({"share": 0.04, "gap": 0.0}, "low"),
    ),
    where=Where(SCRIPT, 61),
    best=({"share": 0.2, "gap": 0.0}, 1 / 0.8),
    also_fires={"unknown places": {"call_sites": CallSites()}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_h2d002_names_the_call() -> None:
    finding = found("H2D002", TABLE.job())
    assert finding.fixes[0].change == ".to(device, non_blocking=True)" and finding.fixes[0].where is not None
    assert finding.fixes[0].where.file == SCRIPT
