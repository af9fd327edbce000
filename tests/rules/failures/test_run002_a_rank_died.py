"""RUN002, a rank died: its table and its advice."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from ending_rule_cases import OOM, death, unjudged
from rn50_advisor.advisor.model.analysis import Analysis, Death, Failure
from rn50_advisor.advisor.model.findings import Finding, Where
from rn50_advisor.advisor.model.incidents import RaisedError
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules
from rule_cases import META, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

INTERRUPTED = {"exit_code": None, "signal": 2}


ENDED = {"exit_code": None, "signal": 15}


def run002(deaths: tuple[Death, ...] | None = None, *, exit_code: int = 1) -> Analysis:
    """Rank 1 was killed, and the launcher ended rank 0."""
    if deaths is None:
        first = death(1, exit_code=None, signal=9, first=True)
        deaths = (first, death(0, exit_code=None, signal=15, t_s=11.0))
    return unjudged(deaths=deaths, meta=replace(META, exit_code=exit_code))


TABLE = Table(
    "RUN002",
    run002,
    lines={},
    false_alarms={
        "no death": {"deaths": ()},
        "the user pressed Ctrl-C": {"deaths": (death(0, **INTERRUPTED), death(1, **INTERRUPTED))},
        "Ctrl-C, caught by Python": {"deaths": (death(0, exception="KeyboardInterrupt: "), death(1, signal=15))},
        "a time limit ended the whole job": {"deaths": (death(0, **ENDED), death(1, **ENDED)), "exit_code": 124},
        "a loader worker died, its rank lives": {"deaths": (death(0, role="worker", signal=9),)},
    },
    severities=(({}, "critical"),),
    ranks=(1,),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("lines", "note", "advice"),
    [
        (("[rank1]: in forward", "[rank1]: ValueError: no"), "its own", "read this rank's own last lines above"),
        (("step 9", "aborted"), "of the job, by any rank", "read this rank's own last lines of output"),
    ],
    ids=["its own", "any rank's"],
)
def test_the_last_lines_of_output_are_attributed_to_their_rank(lines: tuple[str, ...], note: str, advice: str) -> None:
    finding = found("RUN002", unjudged(deaths=(death(1, last_lines=(*lines, "x" * 500)),)))
    rows = [e for e in finding.evidence if e.metric == "last output"]
    assert [e.value for e in rows] == [*lines, "x" * 200] and rows[0].note == note
    assert finding.fixes[0].title.startswith(advice)


@pytest.mark.parametrize(
    ("phase", "words"), [("ended", "step 12"), ("forward", "step 12, in forward"), (None, "an unknown phase")]
)
def test_run002_names_the_phase_unless_the_rank_ended_itself(phase: str | None, words: str) -> None:
    assert found("RUN002", TABLE.job(deaths=(death(1, phase=phase),))).evidence[0].note.endswith(words)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"signal": 9, "exit_code": None}, "was killed by SIGKILL"),
        ({"signal": 9, "exit_code": None, "oom_killed": True}, "was killed by the OOM killer"),
        ({"signal": 250, "exit_code": None}, "was killed by signal 250"),
        ({"exit_code": 3}, "ended with exit code 3"),
        ({"exit_code": None}, "disappeared without shutting down"),
    ],
)
def test_run002_says_how_the_first_rank_died(how: dict[str, Any], words: str) -> None:
    finding = found("RUN002", TABLE.job(deaths=(death(1, **how), death(0, signal=15, exit_code=None))))
    assert finding.title == f"Rank 1 {words}" and finding.fatal


def test_run002_shows_the_exception_and_all_deaths_in_their_order() -> None:
    finding = found("RUN002", TABLE.job(deaths=(death(1, exception="ValueError: no such class"), death(0, t_s=12.0))))
    assert [e.metric for e in finding.evidence] == ["rank 1", "rank 0", "exception"]
    assert finding.evidence[2].value == "ValueError: no such class"
    assert "the exception above" in finding.fixes[0].title


def test_run002_points_at_the_line_that_raised_it_in_a_worker() -> None:
    raised = RaisedError("ValueError: cannot decode", "DataLoader worker process 2", "/job/data.py", 9, "decode")
    finding = found("RUN002", unjudged(deaths=(death(1, exception="ValueError: Caught", raised=raised),)))
    row = finding.evidence[1]
    assert row.value == "ValueError: cannot decode"
    assert row.note == "raised by rank 1 in its DataLoader worker process 2, /job/data.py:9 in decode"
    assert finding.fixes[0].where == Where("/job/data.py", 9)


def test_run002_gives_the_reason_of_a_known_failure() -> None:
    finding = found("RUN002", unjudged(deaths=(death(1), death(0, t_s=12.0)), failure=OOM))
    assert finding.title == "Rank 1 ended with exit code 1: the GPU's memory ran out"
    assert finding.fixes[0].title == "a smaller batch" and finding.evidence[-1].note == "CUDA out of memory."


def test_run002_advises_equal_steps_if_a_rank_ran_out_of_data() -> None:
    gone = death(0, t_s=11.0, exception="RuntimeError: Connection closed by peer", follows=True)
    finding = found("RUN002", unjudged(deaths=(death(1, exit_code=0), gone)))
    assert finding.title == "Rank 1 left while other ranks still trained"
    assert "drop_last" in finding.fixes[0].title


def test_run002_blames_the_rank_that_follows_no_other() -> None:
    gone = death(0, t_s=9.0, exception="RuntimeError: Connection closed by peer", follows=True)
    finding = found("RUN002", unjudged(deaths=(gone, death(1, t_s=10.0)), failure=OOM))
    assert finding.scope.ranks == (1,) and [e.metric for e in finding.evidence][:2] == ["rank 1", "rank 0"]
    assert "consequence" in finding.evidence[1].note


@pytest.mark.parametrize(
    ("first", "failure"),
    [
        (death(1, signal=9, exit_code=None), OOM),
        (death(1, signal=9, exit_code=None, oom_killed=True), replace(OOM, rank=None)),
        (death(0), OOM),
        (death(1), replace(OOM, kind="exception")),
    ],
)
def test_run002_takes_no_reason_that_is_not_this_ranks(first: Death, failure: Failure) -> None:
    assert "memory ran out" not in found("RUN002", unjudged(deaths=(first,), failure=failure)).title


def test_run002_reports_a_job_that_failed_before_it_trained() -> None:
    taken = Failure("address in use", "the rendezvous port is already in use", "another port", None, "EADDRINUSE")
    finding = found("RUN002", unjudged(failure=taken))
    assert finding.title == "The job failed before its first step: the rendezvous port is already in use"
    assert finding.fatal and finding.fixes[0].title == "another port"
    assert found("RUN002", unjudged(failure=replace(taken, rank=2))).scope.ranks == (2,)


def test_run002_reports_a_death_before_the_users_ctrl_c() -> None:
    killed, stopped = death(1, signal=9, exit_code=None), death(0, signal=2, exit_code=None, t_s=70.0)
    assert found("RUN002", TABLE.job(deaths=(killed, stopped))).scope.ranks == (1,)


@pytest.mark.parametrize(("ranks", "followed"), [(1, False), (2, True)])
def test_only_where_there_are_other_ranks_did_they_follow(ranks: int, followed: bool) -> None:
    alone = jobs.job({n: rank() for n in range(ranks)}, deaths=(death(0, exit_code=1),))
    assert ("consequence" in found("RUN002", alone).fixes[0].title) is followed


@pytest.mark.parametrize(("died_s", "fires"), [(56.0, False), (54.0, True)])
def test_ranks_that_leave_with_code_1_as_the_job_is_interrupted_were_interrupted(died_s: float, fires: bool) -> None:
    meta = replace(jobs.META, exit_signal=2, started_ns=0, ended_ns=60_000_000_000)
    given = unjudged(deaths=(death(1, t_s=died_s), death(0, t_s=died_s)), meta=meta)
    rule = next(rule for rule in all_rules() if rule.id == "RUN002")
    assert isinstance(run_rule(rule, given, Config()), Finding) == fires


@pytest.mark.parametrize(
    "own",
    [
        {"exception": "RuntimeError: nan"},
        {"exit_code": None, "signal": 11},
        {"exit_code": None, "signal": 9, "oom_killed": True},
    ],
    ids=["exception", "crash", "no memory"],
)
def test_a_rank_that_failed_just_before_the_rest_was_interrupted_has_failed(own: dict[str, Any]) -> None:
    meta = replace(jobs.META, exit_signal=2, started_ns=0, ended_ns=60_000_000_000)
    given = unjudged(deaths=(death(1, t_s=57.0, **own), death(0, t_s=59.0)), meta=meta)
    assert not given.stopped_from_outside


ASKED_S = 10.0


@pytest.mark.parametrize(
    ("first", "stopped"),
    [
        pytest.param({"t_s": 12.0}, True, id="it leaves with a code of its own"),
        pytest.param({"t_s": 130.0}, True, id="it saves for two minutes before"),
        pytest.param({"t_s": 130.1}, False, id="it went on, and failed later"),
        pytest.param({"t_s": 9.9}, False, id="it had failed before"),
        pytest.param({"t_s": 40.0, "signal": 9, "exit_code": None}, True, id="patience ended"),
        pytest.param({"t_s": 40.0, "signal": 9, "exit_code": None, "oom_killed": True}, False, id="no memory"),
        pytest.param({"t_s": 12.0, "exception": "OSError: No space left on device"}, False, id="it cannot save"),
        pytest.param({"t_s": 12.0, "exception": "RuntimeError: peer gone", "follows": True}, True, id="consequence"),
    ],
)
def test_what_was_asked_to_end_did_not_fail(first: dict[str, Any], stopped: bool) -> None:
    meta = replace(jobs.META, exit_code=1)
    given = unjudged(deaths=(death(1, **first), death(0, t_s=140.0)), meta=meta, asked_to_end_s=(ASKED_S,))
    rule = next(rule for rule in all_rules() if rule.id == "RUN002")
    assert given.stopped_from_outside == stopped != isinstance(run_rule(rule, given, Config()), Finding)
    assert not replace(given, asked_to_end_s=()).stopped_from_outside


@pytest.mark.parametrize(("lasted_s", "why", "stopped"), [(15.0, None, True), (131.0, None, False), (15.0, OOM, False)])
def test_a_job_whose_ranks_leave_in_order_was_stopped_too(lasted_s: float, why: Failure | None, stopped: bool) -> None:
    given = unjudged(duration_s=lasted_s, failure=why, asked_to_end_s=(ASKED_S,))
    assert given.stopped_from_outside == stopped


def test_run002_names_the_rank_that_others_waited_for_before_those_that_died() -> None:
    waited = death(1, exception="RuntimeError: Timed out waiting 12000ms for recv operation", follows=True, t_s=17.0)
    ended = death(0, exit_code=None, signal=signal.SIGTERM, phase="evaluation", t_s=18.0)
    finding = found("RUN002", unjudged(deaths=(waited, ended)))
    assert finding.title == "Rank 1 gave up waiting for rank 0: it evaluates" and finding.scope.ranks == (0,)
    assert [fix.title for fix in finding.fixes] == ["distribute the evaluation across the ranks"]
    assert finding.evidence[0].metric == "waited for"


def test_run002_an_abort_among_several_ranks_is_likely_a_collective_that_does_not_match() -> None:
    aborted = death(0, exit_code=None, signal=signal.SIGABRT)
    for ranks, words in ((2, "call different collectives"), (1, "native code crashed")):
        assert words in found("RUN002", unjudged(deaths=(aborted,), world_size=ranks)).fixes[0].title
