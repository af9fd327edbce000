"""DAT020, garbage collection holds up the workers: its table and its advice."""

from __future__ import annotations

import pytest

import input_rule_cases as input_jobs
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rule_cases import LINE
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "DAT020",
    input_jobs.dat020,
    lines={"share": ({"collecting": 0.02}, {"collecting": 0.0199})},
    false_alarms={"nothing waits for the workers that collect": {"collecting": 0.0}},
    severities=(({"collecting": 0.3}, "critical"), ({"collecting": 0.29}, "high"), ({"collecting": 0.14}, "medium")),
    where=LINE,
    best=({"collecting": 0.3}, warm(1 / 0.7)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat020_promises_no_more_than_the_workers_can_make_without_collections() -> None:
    """Two workers make a batch each second, 0.9 s without their collections: 0.45 s a batch, though 0.4 s of waiting coincide."""
    finding = found("DAT020", TABLE.job(collecting=0.39, share=0.1, wall=1.9))
    assert finding.saving is not None and finding.saving.speedup[1] == pytest.approx(warm(1 / 0.855))


def test_dat020_leads_with_the_line_that_calls_the_collector() -> None:
    def titles(seen: int) -> list[str]:
        line = SampleLine("Frames.__getitem__", "/job/data.py", 61, seen, 8)
        return [fix.title for fix in found("DAT020", TABLE.job(collecting=0.3, found=line)).fixes]

    assert titles(2)[0] == "remove gc.collect()" and titles(1)[0].startswith("gc.freeze()")
