"""H2D001, copies come from pageable memory: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, loader, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "H2D001",
    pace_jobs.h2d001,
    lines={
        "cost": ({"share": 0.0445}, {"share": 0.0444}),
        "slower": ({"slower": 1.25}, {"slower": 1.2499}),
    },
    false_alarms={"as fast as from pinned memory": {"slower": 1.0}, "nothing to speak of": {"share": 0.001}},
    severities=(
        ({"share": 0.8, "own": rank(forward=0.8)}, "critical"),
        ({"share": 0.35}, "high"),
        ({}, "medium"),
        ({"share": 0.1}, "low"),
        ({"slower": 1.3}, "low"),  # a fifth of the step, and the link takes most of it
    ),
    where=Where(SCRIPT, 42),
    best=({"share": 0.25}, 1 / 0.85),
    also_fires={"an unknown link": {"gen": None}, "as a deep window has it": {"deep": 0.3}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_h2d001_says_so_where_pinning_by_the_loader_has_no_effect() -> None:
    pins = tuple(replace(loader(n, 4), pin_memory=True) for n in (0, 1))
    finding = found("H2D001", TABLE.job(loaders=pins))
    assert "pin_memory()" in finding.fixes[0].change
    assert found("H2D001", TABLE.job()).fixes[0].change == "DataLoader(..., pin_memory=True)"
    assert [fix.where.line for fix in found("H2D001", TABLE.job()).fixes if fix.where] == [42, 61]


def test_h2d001_bounds_the_copy_time_by_the_slowest_pageable_rate() -> None:
    waited = found("H2D001", TABLE.job(share=0.5, slower=50.0))  # mostly the wait for what was queued before
    copy = next(e for e in waited.evidence if e.metric == "copy time")
    assert copy.value == pytest.approx(5 * 0.5 / 50)
