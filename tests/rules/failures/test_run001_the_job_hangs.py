"""RUN001, the job hangs: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ending_rule_cases import OOM, death, stands, unjudged
from rn50_advisor.advisor.model.analysis import Analysis, Failure, Stall, StalledRank, StuckCollective
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rule_cases import SCRIPT, loader
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

WRITING = (stands(0, phase="checkpoint", culprit=True), stands(1, waits=True))


WORKING = (stands(0, waits=True, phase="gap"), stands(1, culprit=True, phase="gap", working=True))


COMPILING = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, compiling=True))


SLEEPING = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="asleep"))


EARLY = {"stalled": 20.0, "is_running": True, "ranks": SLEEPING}


FIRST = (replace(stands(0, waits=True, phase="backward"), step=0), replace(stands(1, waits=True), step=0))


IN_FIRST_STEP = {"ranks": FIRST}


COMPUTES = {"stalled": 31.0, "is_running": True, "ranks": WORKING}


def run001(
    stalled: float = 40.0,
    p99: float = 1.2,
    *,
    ended: bool = False,
    ranks: tuple[StalledRank, ...] | None = None,
    is_running: bool = False,
    **more: Any,
) -> Analysis:
    """Rank 1 is stuck in a function of the user's; rank 0 waits for it."""
    if ranks is None:
        ranks = (stands(0, waits=True, phase="backward"), stands(1, culprit=True))
    return unjudged(stalls=(Stall(50.0, stalled, ended, 1.0, p99, ranks, **more),), running=is_running)


TABLE = Table(
    "RUN001",
    run001,
    lines={
        "seconds": ({"stalled": 30.0}, {"stalled": 29.9}),
        "times_p99": ({"stalled": 50.0, "p99": 5.0}, {"stalled": 49.9, "p99": 5.0}),
        "checkpoint_seconds": (
            {"stalled": 600.0, "ranks": WRITING},
            {"stalled": 599.0, "ranks": WRITING},
        ),
        "compile_seconds": (
            {"stalled": 600.0, "ranks": COMPILING},
            {"stalled": 599.0, "ranks": COMPILING},
        ),
        "working_seconds": ({"stalled": 600.0, "ranks": WORKING}, {"stalled": 599.0, "ranks": WORKING}),
        "first_step_seconds": ({**IN_FIRST_STEP, "stalled": 300.0}, {**IN_FIRST_STEP, "stalled": 299.0}),
        "early_seconds": ({**EARLY, "stalled": 15.0}, {**EARLY, "stalled": 14.9}),
    },
    false_alarms={
        "long steps": {"stalled": 300.0, "p99": 60.0},
        "one is stuck and the others go on": {"stalled": 300.0, "others_moved": True},
        "it may be at work": {**EARLY, "ranks": (SLEEPING[0], stands(1, culprit=True))},
        "no rank waits for it": {**EARLY, "ranks": (stands(0), SLEEPING[1])},
        "its loader fills up": {
            **EARLY,
            "ranks": (SLEEPING[0], stands(1, culprit=True, halted="asleep", phase="input_wait")),
        },
        "it evaluates": {
            **EARLY,
            "ranks": (SLEEPING[0], stands(1, culprit=True, halted="asleep", phase="evaluation")),
        },
        "two are stuck": {**EARLY, "ranks": (SLEEPING[0], SLEEPING[1], stands(2, culprit=True, halted="asleep"))},
        "a process alone": {**EARLY, "ranks": (SLEEPING[1],)},
        "a short pause that is over": {**EARLY, "ended": True},
        "a short pause of a job that has ended": {**EARLY, "is_running": False},
        "long steps, and it sleeps": {**EARLY, "p99": 2.1},
        "the first step compiles and tunes": {**IN_FIRST_STEP, "stalled": 120.0},
        "in its first step a rank is at work": {
            "stalled": 120.0,
            "ranks": (FIRST[0], replace(WORKING[1], step=0)),
            "is_running": True,
        },
        "it computes, not for long yet": {**COMPUTES, "stalled": 29.0},
        "it computes, and steps are long": {**COMPUTES, "p99": 3.2},
        "it evaluates for long": {**COMPUTES, "ranks": (WORKING[0], replace(WORKING[1], phase="evaluation"))},
        "it compiles": {**COMPUTES, "ranks": (WORKING[0], replace(WORKING[1], compiling=True))},
        "two compute": {**COMPUTES, "ranks": (*WORKING, replace(WORKING[1], rank=2))},
        "others do not wait for it": {**COMPUTES, "ranks": (stands(0, phase="gap"), WORKING[1])},
    },
    severities=(
        ({}, "critical"),
        ({"ended": True}, "high"),
        ({"ended": True, "resumed": True}, "low"),
        (EARLY, "high"),
        (COMPUTES, "high"),
    ),
    also_fires={
        "a rank that was stopped, in any phase": {
            **EARLY,
            "ranks": (SLEEPING[0], stands(1, culprit=True, halted="stopped", phase="evaluation")),
        },
        "one that computes while all others wait": COMPUTES,
        "one that sleeps in the first step": {
            "stalled": 31.0,
            "is_running": True,
            "ranks": (FIRST[0], replace(SLEEPING[1], step=0, phase="start")),
        },
    },
    ranks=(1,),
    where=Where(SCRIPT, 33),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


STACK = ("read (socket.py:9)", "fetch (client.py:71)", "find_batch (train.py:33)")


def test_a_rank_that_computes_for_long_is_reported_as_that_and_not_as_a_hang() -> None:
    ranks = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, phase="gap", working=True))
    finding = found("RUN001", TABLE.job(ranks=ranks, stalled=41.0, is_running=True))
    assert (
        finding.title == f"Rank 1 has not moved for 41 s and blocks the others: it computes in find_batch ({SCRIPT}:33)"
    )
    assert finding.urgent and not finding.fatal and finding.scope.ranks == (1,)
    assert finding.evidence[0].threshold == 30.0
    assert {e.metric: e.value for e in finding.evidence}["rank 1"] == "computes"
    hangs = found("RUN001", TABLE.job(ranks=ranks, stalled=601.0, is_running=True))
    assert hangs.fatal and hangs.title.startswith("The job hangs: rank 1 computes in find_batch")
    judgement = judge(run001(ranks=ranks, stalled=41.0, is_running=True), [RULES["RUN001"]], Config())
    assert (judgement.verdict.rule, judgement.verdict.state) == ("RUN001", "bottleneck")


def test_the_culprits_stack_is_evidence_innermost_first() -> None:
    ranks = (stands(0, waits=True, frames=("wait (c10d.py:1)",)), stands(1, culprit=True, frames=STACK))
    rows = [e for e in found("RUN001", TABLE.job(ranks=ranks)).evidence if e.metric.startswith("stack")]
    assert [e.value for e in rows] == list(STACK) and {e.metric for e in rows} == {"stack of rank 1"}
    assert [e.note for e in rows] == ["where it is", "called from here", "called from here"]


@pytest.mark.parametrize(
    ("how", "hung"),
    [
        pytest.param({"signal": 6}, True, id="a watchdog gave up on it"),
        pytest.param({"signal": 2}, False, id="the user gave up on a job that compiles"),
    ],
)
def test_a_first_step_that_was_ended_was_a_hang_only_if_the_job_ended_it_itself(
    how: dict[str, Any], hung: bool
) -> None:
    ranks = tuple(replace(stands(n, waits=True, phase="backward"), step=0) for n in range(2))
    stalls = run001(stalled=45.0, ended=True, ranks=ranks).stalls
    deaths = tuple(death(n, exit_code=None, t_s=50.0, **how) for n in range(2))
    result = run_rule(RULES["RUN001"], unjudged(stalls=stalls, deaths=deaths), Config())
    assert isinstance(result, Finding if hung else Clear), result


STUCK = StuckCollective("all_reduce", 57, 2, (0,), (1,), elements=1024, source="torch's flight recorder")


def hang(stuck: StuckCollective | None) -> Finding:
    analysis = run001()
    return found("RUN001", replace(analysis, stalls=(replace(analysis.stalls[0], collective=stuck),)))


def test_a_hang_names_its_collective_and_the_ranks_that_reached_it() -> None:
    (row,) = [e for e in hang(STUCK).evidence if e.metric == "collective"]
    assert row.value == "all_reduce of 1024 elements, number 57"
    assert "rank 0" in row.note and "rank 1 not" in row.note and "flight recorder" in row.note
    assert not [e for e in hang(None).evidence if e.metric == "collective"]


def test_collectives_that_differ_are_named() -> None:
    finding = hang(replace(STUCK, differing="rank 0: all_reduce; rank 1: broadcast"))
    assert "rank 1: broadcast" in finding.fixes[0].title


def test_run001_names_the_culprit_and_who_waits() -> None:
    finding = found("RUN001", TABLE.job())
    assert f"rank 1 is stuck in find_batch ({SCRIPT}:33)" in finding.title
    assert finding.fatal and finding.scope.since_step == 12
    assert {e.metric: e.value for e in finding.evidence}["rank 0"] == "waits for others"
    over = found("RUN001", TABLE.job(ended=True))
    assert not over.fatal and "hung" in over.title


@pytest.mark.parametrize(("died_s", "fatal"), [(15.0, False), (39.9, False), (40.0, True), (64.0, True), (66.0, False)])
def test_run001_is_what_a_job_died_of_that_was_ended_while_it_hung(died_s: float, fatal: bool) -> None:
    """It stood still from the 10th to the 50th second."""
    for first in (0, 1):  # a victim's watchdog, or the culprit
        deaths = (death(first, t_s=died_s, signal=6, first=True),)
        hung = unjudged(stalls=run001(ended=True).stalls, deaths=deaths)
        assert found("RUN001", hung).fatal == fatal
        judgement = judge(hung, [RULES["RUN001"], RULES["RUN002"]], Config())
        assert judgement.verdict.state == "failed" and judgement.verdict.rule == ("RUN001" if fatal else "RUN002")


def test_run001_waits_for_a_rank_that_computes_unless_the_job_died_meanwhile() -> None:
    computes = (stands(0, waits=True), stands(1, culprit=True, working=True))
    stalls = run001(ended=True, ranks=computes).stalls
    assert isinstance(run_rule(RULES["RUN001"], unjudged(stalls=stalls), Config()), Clear)
    died = found("RUN001", unjudged(stalls=stalls, deaths=(death(0, t_s=45.0, signal=6, first=True),)))
    assert {e.metric: e.value for e in died.evidence}["rank 1"] == "computes"
    beside = (stands(0, culprit=True), stands(1, waits=True, working=True))
    assert found("RUN001", TABLE.job(ranks=beside)).fatal, "only the blocking rank counts"


def test_run001_takes_the_last_stall_that_is_long_enough() -> None:
    stalls = (*run001(stalled=90.0).stalls, *run001(stalled=5.0).stalls)
    assert found("RUN001", unjudged(stalls=stalls)).evidence[0].value == 90.0


def test_run001_without_stacks_still_names_the_rank() -> None:
    nowhere: dict[str, Any] = {"file": "", "line": 0, "function": "", "leaf": ""}
    finding = found("RUN001", TABLE.job(ranks=(stands(0, waits=True), stands(1, culprit=True, **nowhere))))
    assert finding.fixes[0].where is None and "rank 1 is stuck" in finding.title


def test_run001_names_no_rank_if_all_wait_in_a_collective() -> None:
    finding = found("RUN001", TABLE.job(ranks=(stands(0, waits=True), stands(1, waits=True))))
    assert finding.scope.ranks == () and "all ranks wait in a collective" in finding.title


def test_run001_counts_the_unobserved_ranks_that_a_rank_waits_for() -> None:
    finding = found("RUN001", TABLE.job(ranks=(stands(2, waits=True),), group_size=4))
    assert "rank 2 waits in a collective for 3 of 4 that were not observed here" in finding.title
    assert finding.scope.ranks == () and "missing ranks" in finding.fixes[0].title


def test_run001_blames_no_rank_that_only_waits() -> None:
    finding = found("RUN001", TABLE.job(ranks=(stands(0, waits=True), stands(1, waits=True))))
    assert "only wait for it" not in finding.fixes[0].title


def test_run001_calls_what_sleeps_no_hang_yet() -> None:
    sleeps = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="asleep"))
    finding = found("RUN001", TABLE.job(ranks=sleeps, stalled=18.0, is_running=True))
    assert finding.title.startswith("Rank 1 has not moved for 18 s") and f"find_batch ({SCRIPT}:33)" in finding.title
    assert "hang" not in finding.title and finding.urgent and not finding.fatal and finding.confidence < 0.7
    assert found("RUN001", TABLE.job(ranks=sleeps, stalled=31.0, is_running=True)).fatal


def test_run001_names_no_line_of_a_rank_that_was_stopped() -> None:
    stopped = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, halted="stopped"))
    finding = found("RUN001", TABLE.job(ranks=stopped, stalled=18.0, is_running=True))
    assert "stopped by a signal" in finding.title
    assert finding.fixes[0].where is None and "kill -CONT" in finding.fixes[0].title


def test_run001_calls_a_pause_a_pause() -> None:
    finding = found("RUN001", TABLE.job(ended=True, resumed=True))
    assert finding.title.startswith("No progress for 40 s, then the job went on") and not finding.fatal


def test_run001_adds_the_watchdogs_last_message() -> None:
    gave_up = Failure("watchdog", "the NCCL watchdog gave up on a collective", "", 3, "[Rank 0] Watchdog caught …")
    row = found("RUN001", unjudged(stalls=run001(ended=True).stalls, failure=gave_up)).evidence[-1]
    assert row.value == "watchdog" and row.note.startswith("rank 3: the NCCL watchdog gave up")
    assert found("RUN001", unjudged(stalls=run001().stalls, failure=OOM)).evidence[-1].metric == "rank 1"


def test_a_hang_of_unobserved_ranks_is_not_ruled_out() -> None:
    unobserved = replace(run001(), stalls=(), world_size=0)
    assert run_rule(RULES["RUN001"], unobserved, Config()) == NotMeasured("RUN001", ("step.time_s",))
    assert run_rule(RULES["RUN001"], replace(unobserved, world_size=1), Config()) == Clear("RUN001")


def test_run001_says_that_the_rank_it_names_has_run_out_of_batches() -> None:
    loaders = (loader(0, 0, dataset={"length": 160}), loader(1, 0, dataset={"length": 96}))
    hung = replace(TABLE.job(), loaders=loaders)
    finding = found("RUN001", hung)
    assert finding.fixes[0].title == "provide the same number of batches to all ranks: rank 1 ran out"
    assert "only waits for it" in finding.fixes[1].title
