"""LOP007, the step waits in the user's own code: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import host_rule_cases as host_jobs
from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import PeriodicStall
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, rank
from rule_runs import RULES, found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "LOP007",
    host_jobs.lop007,
    lines={"waiting": ({"waits": 0.05}, {"waits": 0.0499})},
    false_alarms={
        "it sleeps, but in none of the script's lines": {"waits": 0.01, "asleep": 0.4},
        "too few samples of the line to name it": {"samples": 9},
        "no profile because no time is unexplained": {"seen": False, "asleep": 0.04},
    },
    severities=waits("waits"),
    where=Where(SCRIPT, 77),
    best=({"waits": 0.4}, warm(1 / 0.6)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop007_says_where_it_waits_and_promises_the_step_without() -> None:
    finding = found("LOP007", TABLE.job())
    assert finding.title == "Blocking wait inside the step: fetch_features"
    assert (
        finding.scope.ranks == () and "move the wait in fetch_features to the loader workers" in finding.fixes[0].title
    )
    assert finding.saving is not None and finding.saving.seconds_per_step == pytest.approx((0.15, 0.224))


def test_lop007_gives_back_sleep_within_the_backward_as_well() -> None:
    own = {number: rank(forward=0.1, backward=0.9) for number in (0, 1)}
    given = host_jobs.lop007(waits=0.4)
    assert given.model is not None
    saving = found("LOP007", replace(given, model=replace(given.model, own=own))).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.7, warm(1 / 0.6)))


def test_lop007_is_about_the_rank_that_waits_and_gains_what_the_others_need_less() -> None:
    finding = found("LOP007", TABLE.job(alone=True))
    assert finding.title.endswith(" on rank 1") and finding.scope.ranks == (1,)
    assert finding.saving is not None and finding.saving.seconds_per_step[0] == pytest.approx(0.15)


def test_lop007_is_not_measured_if_a_rank_sleeps_without_a_profile() -> None:
    result = run_rule(RULES["LOP007"], host_jobs.lop007(seen=False), Config())
    assert result == NotMeasured("LOP007", ("step.waiting_s",))


@pytest.mark.parametrize(
    ("phase", "coincides", "explained"),
    [
        ("forward", "", True),
        ("backward", "", True),
        ("forward", "garbage collection", False),
        ("gap", "", False),
        ("input_wait", "", False),
        (None, "", False),
    ],
)
def test_what_sleeps_in_every_step_explains_stalls_of_the_same_phases_alone(
    phase: str | None, coincides: str, explained: bool
) -> None:
    pulse = phase and PeriodicStall(10.0, None, 30, 300, 0.8, 2.0, 0.05, None, phase, coincides, 300)
    stalling = replace(host_jobs.lop007(), pulse=pulse or None)
    assert ("RUN004" in would_explain(stalling, found("LOP007", stalling))) == explained
