"""CPU001, a CPU quota throttles the job: its table and its advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import job, rank
from rule_runs import RULES, best_step_s, found
from rule_table import Table, warm
from table_checks import Check, checks


def cpu001(
    held: float = 0.5, periods: float = 0.6, *, everybody: bool = False, rest: float = 0.6, **more: Any
) -> Analysis:
    """A quota holds rank 1 back (or everybody); the other rank needs `rest` seconds."""
    own = {0: rank(1.0 if everybody else rest), 1: rank()}
    who = (0, 1) if everybody else (1,)
    values: dict[str, Mapping[int, float]] = {
        "quota.cores": dict.fromkeys(who, 0.35),
        "quota.throttled_share": dict.fromkeys(who, periods),
        "quota.throttled_s_per_s": dict.fromkeys(who, held),
    }
    return job(own, values=values, **more)


TABLE = Table(
    "CPU001",
    cpu001,
    lines={"held": ({"held": 0.05}, {"held": 0.0499}), "periods": ({"periods": 0.05}, {"periods": 0.0499})},
    false_alarms={
        "a quota that is never reached": {"held": 0.0, "periods": 0.0},
        "throttled, but no rank waits for it": {"rest": 0.99},
    },
    severities=(({"rest": 0.5}, "critical"), ({"rest": 0.8}, "high"), ({"rest": 0.9}, "medium")),
    ranks=(1,),
    best=({"rest": 0.9}, warm(1 / 0.9)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cpu001_names_the_ranks_that_the_quota_throttles() -> None:
    assert "0.35 cores throttles rank 1" in found("CPU001", TABLE.job()).title
    everybody = found("CPU001", TABLE.job(everybody=True))
    assert "the job" in everybody.title and everybody.scope.ranks == ()


def test_cpu001_survives_a_throttled_rank_without_a_step() -> None:
    analysis = cpu001()
    late_comer = {(name, 2): 0.5 for name in ("quota.cores", "quota.throttled_share", "quota.throttled_s_per_s")}
    finding = run_rule(RULES["CPU001"], replace(analysis, values={**analysis.values, **late_comer}), Config())
    assert isinstance(finding, Finding), finding
    assert finding.scope.ranks == (1,)


def test_cpu001_gives_the_pauses_of_one_rank_back_with_its_quota() -> None:
    analysis = cpu001(rest=0.5)
    assert analysis.model is not None
    # the rank's usual step is half as long again as the other's; pauses in some steps double the mean
    bursts = replace(analysis.model, step_s=1.5, own={0: rank(0.5), 1: rank(0.75)})
    held = {**analysis.values, ("quota.throttled_s_per_s", 1): 0.6}
    finding = run_rule(RULES["CPU001"], replace(analysis, model=bursts, values=held), Config())
    assert isinstance(finding, Finding) and finding.saving is not None
    assert finding.saving.speedup[1] > 2.7, "what is left of the pauses is no part of the best case"


def test_cpu001_on_all_ranks_leaves_them_their_work() -> None:
    analysis = cpu001(everybody=True)
    assert analysis.model is not None
    cores = {**analysis.values, ("cpu.host_cores", "job"): 2.0}
    finding = run_rule(
        RULES["CPU001"], replace(analysis, model=replace(analysis.model, job_cpu_s=1.8), values=cores), Config()
    )
    assert not isinstance(finding, Finding) or best_step_s(finding) >= 0.9 * 0.9


@pytest.mark.parametrize(("quota", "words"), [(1.0, "of 1 core throttles"), (0.35, "of 0.35 cores throttles")])
def test_cpu001_counts_its_cores(quota: float, words: str) -> None:
    held = cpu001()
    finding = found("CPU001", replace(held, values={**held.values, ("quota.cores", 1): quota}))
    assert words in finding.title and words.removesuffix(" throttles").removeprefix("of ") in finding.fixes[1].title
