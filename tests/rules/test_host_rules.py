"""What several rules on the loop, its host and its stalls have in common."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import host_rule_cases as host_jobs
import rule_cases as jobs
from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import PeriodicStall
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT
from rule_runs import RULES, STEP_S, found
from rule_tables import TABLES


@pytest.mark.parametrize("rule", ["CPU003", "CPU005"])
@pytest.mark.parametrize(
    ("given", "explained"),
    [
        ({}, True),
        ({"coincides": "waiting for a core"}, True),
        ({"phase": "gap"}, False),
        ({"coincides": "a checkpoint"}, False),
    ],
)
def test_stalls_within_computing_come_of_threads_that_wait_for_cores(
    rule: str, given: dict[str, str], explained: bool
) -> None:
    stalls = PeriodicStall(5.0, None, 90, 463, 0.0175, 0.123, 0.5, None, "forward", "", 463)
    made = TABLES[rule].job()
    stalling = replace(made, pulse=replace(stalls, **given))
    assert ("RUN004" in would_explain(stalling, found(rule, stalling))) == explained


@pytest.mark.parametrize(("share", "stalls"), [(0.2, True), (0.05, False)])
def test_what_sleeps_every_so_many_steps_is_a_stall_with_its_line(share: float, stalls: bool) -> None:
    pulse = PeriodicStall(10.0, None, 30, 300, 0.8, 2.0, share, None, "forward", "", 300)
    given = replace(host_jobs.lop007(), pulse=pulse)
    stall, waits = found("RUN004", given), found("LOP007", given)
    assert ("LOP007" in would_explain(given, stall)) == stalls and ("RUN004" in would_explain(given, waits)) != stalls
    assert (stall.fixes[0].where == waits.fixes[0].where) == stalls


def test_input_rules_promise_what_the_forecast_says() -> None:
    for rule, analysis in (("DAT003", jobs.dat003(wait=0.8, wall=0.8, job_cores=1.0)), ("DAT004", jobs.dat004())):
        finding = found(rule, analysis)
        workers = int(re.findall(r"num_workers=\d+ → (\d+)", finding.fixes[0].title)[0])
        assert analysis.forecast is not None and finding.saving is not None
        best, worst = analysis.forecast.step_s(workers)
        assert finding.saving.seconds_per_step == pytest.approx((STEP_S - worst, STEP_S - best))


@pytest.mark.parametrize(
    ("rule", "phase", "left"), [("LOP001", "gap.checkpoint", 0.0), ("LOP003", "gap.evaluation", 0.1)]
)
def test_what_interrupts_the_steps_lets_their_caches_go_cold(rule: str, phase: str, left: float) -> None:
    analysis = TABLES[rule].job(spent=0.3)
    finding = found(rule, analysis)
    model, saving = analysis.model, finding.saving
    after_s = model.step_if({(number, phase): left * own[phase] for number, own in model.own.items()})
    assert saving is not None and saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


def test_lop001_counts_the_checkpoints_and_lop003_the_evaluations() -> None:
    assert [e.value for e in found("LOP001", TABLES["LOP001"].job()).evidence][1:] == [6.0]
    assert len(found("LOP001", TABLES["LOP001"].job(seen=False)).evidence) == 1
    rows = {e.metric: e for e in found("LOP003", TABLES["LOP003"].job()).evidence}
    assert rows["evaluations"].value == 4.0
    assert f"{SCRIPT}:60" in rows["loader.workers"].note  # the loader that evaluates


@pytest.mark.parametrize(
    ("rule", "nothing", "steps"), [("RUN003", {"changes": ()}, 80), ("RUN004", {"pulse": None}, 30)]
)
def test_too_few_steps_hide_a_change_and_a_period(rule: str, nothing: dict[str, Any], steps: int) -> None:
    for steady, says in ((steps - 1, NotMeasured(rule, ("step.steady",))), (steps, Clear(rule))):
        assert run_rule(RULES[rule], TABLES[rule].job(**nothing, steady=steady), Config()) == says


def test_within_a_quota_workers_are_missing_however_busy_the_rest_of_the_host_is() -> None:
    busy = {"cpu.host_busy_cores": 44.0, "cpu.other_cores": 40.0, "cpu.host_cores": 64.0, "cpu.affinity_cores": 64.0}
    for rule, job, says in (
        ("DAT004", jobs.dat004, Finding),
        ("DAT001", jobs.dat001, Clear),
        ("CPU003", jobs.cpu003, Clear),
    ):
        within = job()
        values = {**within.values, ("cpu.job_cores", "job"): 4.0, **{(name, "job"): v for name, v in busy.items()}}
        assert isinstance(run_rule(RULES[rule], replace(within, values=values), Config()), says), rule


@pytest.mark.parametrize("rule", ["LOP002", "LOP004"])
def test_what_is_a_checkpoints_is_neither_logging_nor_anybodys_line(rule: str) -> None:
    given = TABLES["LOP001"].job(spent=0.1, gap=0.2, saving=0.9, values={"gap.save_share": 0.9, "gap.io_share": 0.1})
    assert run_rule(RULES[rule], given, Config()) == Clear(rule)
