"""Several ranks that are slow alike, as those of a bad host are: they are named together, and no chance spread is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.changes import SpeedChange
from rn50_advisor.advisor.model.findings import Clear, Finding, Outcome
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.stragglers import apart
from rule_cases import rank
from rule_runs import RULES


def ranks_of(slow: set[int], count: int, **phases: float) -> Analysis:
    """Ranks that compute 0.6 s, but for these, which take `phases` besides and are last by turns and by little."""
    own = {n: rank(0.6 + sum(phases.values()) * (n in slow), **(phases if n in slow else {})) for n in range(count)}
    kept = {n: 0.36 / len(slow) if n in slow else 0.01 for n in range(count)}
    values = {"comm.skew_s": 0.4, "comm.kept_waiting_s": kept}
    return jobs.job(own, late=dict.fromkeys(range(count), 0.05), values=values)


def outcome(rule: str, analysis: Analysis) -> Outcome:
    return run_rule(RULES[rule], analysis, Config())


def test_two_slow_ranks_of_eight_are_found_though_neither_is_always_the_last() -> None:
    found = outcome("CMP007", ranks_of({2, 3}, 8, forward=0.58))
    assert isinstance(found, Finding)
    assert found.scope.ranks == (2, 3) and found.title == "Slow compute on ranks 2–3"
    # with one of them alone sped up, the other would hold the step
    assert found.saving is not None and found.saving.speedup[1] > 1.4


def test_two_ranks_short_of_data_of_four_are_found_together() -> None:
    found = outcome("DAT008", ranks_of({0, 2}, 4, input_wait=0.4))
    assert isinstance(found, Finding)
    assert found.scope.ranks == (0, 2) and found.title.startswith("Data loading: ranks 0, 2 short of data")
    assert found.seconds_per_step == pytest.approx(0.4)


def test_a_rank_whose_workers_deliver_in_waves_is_short_of_data_though_it_is_seldom_last() -> None:
    found = outcome("DAT008", ranks_of({2}, 4, input_wait=0.4))
    assert isinstance(found, Finding) and found.scope.ranks == (2,)


@pytest.mark.parametrize(("rule", "phase"), [("CMP007", "forward"), ("DAT008", "input_wait")])
def test_slow_ranks_that_no_rank_waits_for_are_left_alone(rule: str, phase: str) -> None:
    analysis = ranks_of({2, 3}, 8, **{phase: 0.58})
    kept = {("comm.kept_waiting_s", n): 0.05 for n in range(8)}
    assert outcome(rule, replace(analysis, values={**analysis.values, **kept})) == Clear(rule)


@pytest.mark.parametrize(("rule", "phase"), [("CMP007", "forward"), ("DAT008", "input_wait")])
def test_ranks_that_became_slow_are_slow_since_then(rule: str, phase: str) -> None:
    analysis = ranks_of({2, 3}, 8, **{phase: 0.58})
    since = {}
    for at in (3, 0):  # of the slow ones, and of another
        change = SpeedChange(120, 30.0, None, 0.6, 1.18, 100, 100, 50.0, 0.2, at, phase, 0.58)
        found = outcome(rule, replace(analysis, changes=(change,)))
        assert isinstance(found, Finding)
        since[at] = found.scope.since_step
    assert since == {3: 120, 0: None}


def test_a_culprit_is_as_sure_as_it_is_the_last_one() -> None:
    found = []
    for late in (0.5, 0.75, 1.0):
        own = {0: rank(0.6), 1: rank(1.0, forward=0.4)}
        finding = outcome("CMP007", jobs.job(own, late={0: 0.0, 1: late}, values={"comm.skew_s": 0.4}))
        assert isinstance(finding, Finding)
        found.append(finding.confidence)
    assert found == [0.75, 0.85, 0.95]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.0], ((0,), 1.0)),
        ([1.0, 2.0, 2.0, 1.0], ((1, 2), 1.0)),
        ([1.0, 2.0, 2.0], ((1,), 1.5)),  # the most that is not a half may be
        ([1.0, 1.1, 1.2, 3.0], ((3,), 1.1)),
        ([5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 1.0], ((0, 1, 2, 3), 1.0)),
    ],
)
def test_ranks_apart_from_the_rest(values: list[float], expected: tuple[tuple[int, ...], float]) -> None:
    assert apart(dict(enumerate(values)), lambda own, rest: own >= 1.5 * rest) == expected
