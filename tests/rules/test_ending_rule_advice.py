"""What the rules on hangs and deaths say beyond their tables: what a rank does that keeps the others, its stack, its last lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rule_cases as jobs
from rule_cases import SCRIPT, death, stands
from test_rule_cases import RULES, found

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule

STACK = ("read (socket.py:9)", "fetch (client.py:71)", "find_batch (train.py:33)")


def said(rule: str, analysis: Analysis) -> Finding:
    result = run_rule(RULES[rule], analysis, Config())
    assert isinstance(result, Finding), result
    return result


def test_a_rank_that_computes_for_long_is_told_of_as_that_and_as_no_hang() -> None:
    ranks = (stands(0, waits=True, phase="backward"), stands(1, culprit=True, phase="gap", working=True))
    finding = found("RUN001", ranks=ranks, stalled=41.0, is_running=True)
    assert (
        finding.title == f"Rank 1 has not moved for 41 s and keeps the others: it computes in find_batch ({SCRIPT}:33)"
    )
    assert finding.urgent and not finding.fatal and finding.scope.ranks == (1,)
    assert finding.evidence[0].threshold == 30.0
    assert {e.metric: e.value for e in finding.evidence}["rank 1"] == "computes"
    hangs = found("RUN001", ranks=ranks, stalled=601.0, is_running=True)
    assert hangs.fatal and hangs.title.startswith("The job hangs: rank 1 computes in find_batch")
    judgement = judge(jobs.run001(ranks=ranks, stalled=41.0, is_running=True), [RULES["RUN001"]], Config())
    assert (judgement.verdict.rule, judgement.verdict.state) == ("RUN001", "bottleneck")


def test_the_culprits_stack_is_evidence_innermost_first() -> None:
    ranks = (stands(0, waits=True, frames=("wait (c10d.py:1)",)), stands(1, culprit=True, frames=STACK))
    rows = [e for e in found("RUN001", ranks=ranks).evidence if e.metric.startswith("stack")]
    assert [e.value for e in rows] == list(STACK) and {e.metric for e in rows} == {"stack of rank 1"}
    assert [e.note for e in rows] == ["where it stands", "called from here", "called from here"]


@pytest.mark.parametrize(
    ("how", "hung"),
    [
        pytest.param({"signal": 6}, True, id="a watchdog gave up on it"),
        pytest.param({"signal": 2}, False, id="the user gave up on a job that compiles"),
    ],
)
def test_a_first_step_that_somebody_ended_was_a_hang_only_where_the_job_ended_it_itself(
    how: dict[str, Any], hung: bool
) -> None:
    ranks = tuple(replace(stands(n, waits=True, phase="backward"), step=0) for n in range(2))
    stalls = jobs.run001(stalled=45.0, ended=True, ranks=ranks).stalls
    deaths = tuple(death(n, exit_code=None, t_s=50.0, **how) for n in range(2))
    result = run_rule(RULES["RUN001"], jobs.unjudged(stalls=stalls, deaths=deaths), Config())
    assert isinstance(result, Finding if hung else Clear), result


@pytest.mark.parametrize(
    ("lines", "note", "advice"),
    [
        (("[rank1]: in forward", "[rank1]: ValueError: no"), "its own", "read this rank's own last lines above"),
        (("step 9", "aborted"), "of the job, by any rank", "read this rank's own last lines of output"),
    ],
    ids=["its own", "somebody's"],
)
def test_the_last_lines_of_output_are_evidence_of_whose_they_are(
    lines: tuple[str, ...], note: str, advice: str
) -> None:
    finding = said("RUN002", jobs.unjudged(deaths=(death(1, last_lines=(*lines, "x" * 500)),)))
    rows = [e for e in finding.evidence if e.metric == "last output"]
    assert [e.value for e in rows] == [*lines, "x" * 200] and rows[0].note == note
    assert finding.fixes[0].title.startswith(advice)
