"""LOP005, start-up is long: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, loader, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def lop005(
    total: float = 200.0, run: float = 1000.0, *, first_step: float = 0.1, discarded: float = 0.0, **more: Any
) -> Analysis:
    """A start-up of which this share is the first step's own, and a tenth the first fetch. `discarded`: seconds in batches besides."""
    values = {
        "start.total_s": total + discarded,
        "start.before_s": (0.9 - first_step) * total,
        "start.fetch_s": 0.1 * total,
        "start.first_step_s": first_step * total,
        "run.duration_s": run,
        **({"start.skipped_s": discarded} if discarded else {}),
    }
    return job({0: rank()}, values=values, **more)


TABLE = Table(
    "LOP005",
    lop005,
    lines={
        "seconds": ({"total": 120.0, "run": 500.0}, {"total": 119.9, "run": 500.0}),
        "share": ({"total": 100.0, "run": 1000.0}, {"total": 99.9, "run": 1000.0}),
        "run": ({"total": 90.0, "run": 600.0}, {"total": 90.0, "run": 599.9}),
        "discarded": ({"total": 9.0, "run": 400.0, "discarded": 20.0}, {"total": 9.0, "run": 400.0, "discarded": 19.9}),
        "discarded_s": ({"total": 9.0, "run": 50.0, "discarded": 5.0}, {"total": 9.0, "run": 50.0, "discarded": 4.9}),
    },
    false_alarms={
        "a short run, most of it start-up": {"total": 40.0, "run": 60.0},
        "a long run has a long start-up only where it is a share of it": {"total": 100.0, "run": 5000.0},
        "a run that goes on": {"total": 100.0, "run": 700.0, "running": True},
        "discarded batches of a run that goes on": {"total": 9.0, "run": 50.0, "discarded": 20.0, "running": True},
    },
    severities=(
        ({}, "low"),
        ({"total": 900.0}, "low"),
        ({"total": 9.0, "run": 100.0, "discarded": 5.0}, "medium"),
        ({"total": 9.0, "run": 100.0, "discarded": 20.0}, "high"),
    ),
    also_fires={
        "two minutes are long in a long run": {"total": 130.0, "run": 90_000.0},
        "two minutes are long while it runs": {"total": 130.0, "run": 140.0, "running": True},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop005_has_the_sampler_skip_what_a_resumed_run_discards() -> None:
    finding = found("LOP005", lop005(total=9.0, run=50.0, discarded=8.0, loaders=(loader(0, 0, line=7),)))
    assert finding.title == "Slow resume: 8.00 s for batches that are fetched and discarded"
    assert "skip_first_batches" in finding.fixes[0].change
    assert finding.fixes[0].where == Where(SCRIPT, 7)
