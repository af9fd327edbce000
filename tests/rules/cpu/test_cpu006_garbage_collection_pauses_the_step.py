"""CPU006, garbage collection pauses the step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import host_rule_cases as host_jobs
import rule_cases as jobs
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rule_cases import SCRIPT, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CPU006",
    host_jobs.cpu006,
    lines={
        "share": ({"lost": 0.02}, {"lost": 0.0199}),
        "pause": ({"lost": 0.001, "pause": 0.05}, {"lost": 0.001, "pause": 0.0499}),
    },
    false_alarms={
        "young collections": {"lost": 0.003, "own": 0.003, "pause": 0.002},
        "a rank that collects while it would wait anyway": {"lost": 0.0, "own": 0.04, "pause": 0.04},
    },
    severities=(
        ({"lost": 0.30}, "critical"),
        ({"lost": 0.15}, "high"),
        ({"lost": 0.05}, "medium"),
        ({"lost": 0.04}, "low"),
        ({"lost": 0.001, "pause": 0.2}, "low"),
    ),
    best=({"lost": 0.2}, 1 / 0.75),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cpu006_distinguishes_the_loops_own_collections_from_the_interpreters() -> None:
    assert "gc.freeze()" in found("CPU006", TABLE.job()).fixes[0].title
    own = {n: rank(gap=0.2) for n in (0, 1)}
    called = host_jobs.cpu006(between=0.2, own_s=own, hot_lines=(jobs.hot(70, "fit", io=False),))
    fix = found("CPU006", called).fixes[0]
    assert "collect less often" in fix.title and fix.where == Where(SCRIPT, 70)


def test_cpu006_promises_no_more_than_the_rest_of_the_step_allows() -> None:
    saving = found("CPU006", TABLE.job(lost=0.9, own=0.9)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.19, 1 / 0.075))


@pytest.mark.parametrize(("long", "left"), [(1.0, 0.1), (0.5, 0.55), (0.49, 0.35), (0.0, 0.35)])
def test_cpu006_advises_what_spares_the_collections_that_take_the_time(long: float, left: float) -> None:
    finding = found("CPU006", TABLE.job(lost=0.2, long=long))
    titles = [fix.title for fix in finding.fixes]
    assert titles[0].startswith("gc.freeze()" if long >= 0.5 else "collect young generations")
    assert finding.saving is not None and finding.saving.speedup[0] == pytest.approx(1 / (0.8 + left * 0.2))


def test_cpu006_leads_with_the_line_of_the_loop_that_calls_the_collector() -> None:
    line = replace(jobs.hot(70, "fit", io=False), collects=True, share=0.9)
    finding = found("CPU006", TABLE.job(hot_lines=(line,)))
    assert finding.fixes[0].title.startswith("remove gc.collect()") and finding.fixes[0].where == Where(SCRIPT, 70)
    rare = found("CPU006", TABLE.job(hot_lines=(replace(line, share=0.4),)))
    assert rare.fixes[0].title.startswith("gc.freeze()")


def test_cpu006_leads_with_the_data_sets_own_call_of_the_collector() -> None:
    line = SampleLine("Frames.__getitem__", "/job/data.py", 61, 5, 8)
    fix = found("CPU006", TABLE.job(collecting=line)).fixes[0]
    assert fix.title == "remove gc.collect()" and fix.where == Where("/job/data.py", 61)


def test_cpu006_names_the_ranks_that_collect() -> None:
    assert found("CPU006", TABLE.job(only=1)).scope.ranks == (1,)
    assert found("CPU006", TABLE.job()).scope.ranks == ()
