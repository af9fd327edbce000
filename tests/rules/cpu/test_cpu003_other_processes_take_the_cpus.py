"""CPU003, other processes take the CPUs: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from explained_rules import would_explain
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import rank
from rule_runs import RULES, best_step_s, found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "CPU003",
    jobs.cpu003,
    lines={
        "delay": ({"delay": 0.10}, {"delay": 0.0999}),
        "other_cores": ({"others": 4.0}, {"others": 3.99}),
        "busy": ({"busy": 13.6}, {"busy": 13.59}),
    },
    false_alarms={
        "the job's own workers and threads crowd it": {"others": 0.5},
        "idle cores are left": {"busy": 9.0},
        "a launcher that does a little": {"others": 0.5, "helpers": 0.3},
    },
    severities=waits("delay"),
    best=({"delay": 0.3}, warm(1 / 0.7)),
    also_fires={"helpers of the job's own": {"others": 0.0, "helpers": 8.0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


LATE_RANK = {"CMP007", "COM002"}


def test_cpu003_names_the_ranks_that_get_no_core() -> None:
    assert found("CPU003", TABLE.job()).scope.ranks == ()
    analysis = jobs.cpu003(only=0.0)
    assert analysis.model is not None
    slowest = replace(analysis.model, own={0: rank(0.5), 1: rank(1.0)})
    analysis = replace(analysis, model=slowest)
    one = run_rule(RULES["CPU003"], analysis, Config())
    assert isinstance(one, Finding) and one.scope.ranks == (1,) and would_explain(analysis, one) >= LATE_RANK
    assert not LATE_RANK & would_explain(jobs.cpu003(), found("CPU003", TABLE.job())), (
        "what slows all alike makes none of them late"
    )


def test_cpu003_promises_nothing_for_a_rank_that_no_other_waits_for() -> None:
    analysis = jobs.cpu003(only=0.0)
    assert analysis.model is not None
    idle = replace(analysis.model, own={0: rank(1.0), 1: rank(0.6)})  # rank 1 gets no core, and waits for rank 0
    finding = run_rule(RULES["CPU003"], replace(analysis, model=idle), Config())
    assert not isinstance(finding, Finding) or best_step_s(finding) >= 0.99


def test_cpu003_names_other_processes_of_the_job() -> None:
    finding = found("CPU003", TABLE.job(others=1.0, helpers=7.0))
    assert "the job's own helper processes keep 8.0 cores busy" in finding.title
    assert "python embed.py" in finding.evidence[1].note and "run these processes elsewhere" in finding.fixes[0].title
    neighbours = found("CPU003", TABLE.job(others=7.0, helpers=1.0))
    assert (
        neighbours.title.startswith("CPU contention: other processes keep 8.0")
        and "stop or move" in neighbours.fixes[0].title
    )
    assert neighbours.seconds_per_step == pytest.approx(found("CPU003", TABLE.job(others=8.0)).seconds_per_step)


def test_a_job_that_crowds_the_cores_it_is_bound_to_blames_no_processes_on_other_cores() -> None:
    crowded = jobs.cpu003(others=30.0, busy=34.0)
    about = {"cpu.allowed_cores": 4.0, "cpu.affinity_cores": 4.0, "cpu.host_cores": 64.0}
    bound = replace(crowded, values={**crowded.values, **{(name, "job"): value for name, value in about.items()}})
    assert run_rule(RULES["CPU003"], bound, Config()) == Clear("CPU003")
    # it uses half of its cores and yet waits for one: other processes are on them
    shared = replace(bound, values={**bound.values, ("cpu.job_cores", "job"): 2.0})
    assert found("CPU003", shared).evidence[1].value == pytest.approx(2.0)
