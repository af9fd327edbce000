"""CPU002, the hypervisor steals CPU: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_runs import best_step_s, found
from rule_table import Table, waits
from table_checks import Check, checks


def cpu002(steal: float = 0.2, **more: Any) -> Analysis:
    return job({0: rank(), 1: rank()}, values={"cpu.steal_share": steal}, **more)


TABLE = Table(
    "CPU002",
    cpu002,
    lines={"steal": ({"steal": 0.05}, {"steal": 0.0499})},
    false_alarms={"bare metal reads nothing": {"steal": 0.0}},
    severities=waits("steal"),
    best=({"steal": 0.2}, 1 / 0.8),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_on_a_half_idle_host_running_threads_lose_more_than_the_steal_share() -> None:
    # the job keeps 3.1 of 8 cores busy, other processes half a core
    half_idle = cpu002(0.1, cores=8.0, job_cores=3.1)
    known = replace(half_idle, values={**half_idle.values, ("cpu.host_cores", "job"): 8.0})
    assert best_step_s(found("CPU002", known)) == pytest.approx(1 - 0.8 / (0.8 + 3.6))
    assert best_step_s(found("CPU002", half_idle)) == pytest.approx(0.9)
