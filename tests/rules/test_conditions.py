"""Conditions under which one finding causes another: each is used, holds where its words say so, and never raises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Death, EvaluationWork, HotLine, PeriodicStall
from rn50_advisor.advisor.model.findings import Affected, Circumstance, Finding, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.rules import conditions
from rn50_advisor.rules.causes import CAUSES, is_cause
from rn50_advisor.rules.conditions import Condition, stalls_in, stalls_with

ROWS = [cause for group in CAUSES.values() for cause in group]
NAMED = {name: found for name, found in vars(conditions).items() if isinstance(found, Condition)}


def finding(rule: str, *ranks: int) -> Finding:
    return Finding(rule, "it fired", "high", 0.9, 0.1, Affected(ranks))


@pytest.mark.parametrize("condition", NAMED.values(), ids=NAMED)
def test_a_condition_is_used_and_never_raises(condition: Condition) -> None:
    assert any(condition in (cause.when, cause.unless) for cause in ROWS)
    assert not condition.words.endswith(".") and condition.words[0].islower()
    bare = jobs.job({0: jobs.rank(0.5)})
    for a in (bare, replace(bare, values={}, model=None, facts={}, storage=None)):
        assert condition.holds(a, finding("CMP007"), finding("COM002")) in (True, False)


def test_what_holds_of_some_ranks_only_makes_them_late() -> None:
    a = jobs.job({0: jobs.rank(0.5), 1: jobs.rank(0.5)})
    for rule in ("CMP010", "CMP012", "CPU003"):
        assert is_cause(a, finding(rule, 1), finding("CMP007", 1))
        assert not is_cause(a, finding(rule), finding("CMP007", 1))


@pytest.mark.parametrize(
    ("where", "lost_s", "writes"),
    [(None, 0.1, True), (None, 0.21, False), (Where("/job/train.py", 7), 0.1, False)],
)
def test_logging_explains_a_thread_of_a_librarys_own_that_holds_the_interpreter(
    where: Where | None, lost_s: float, writes: bool
) -> None:
    a = jobs.job(
        {0: jobs.rank(0.8, gap=0.2)},
        values={"interpreter.lost_s": {0: lost_s}, "step.gap_s": {0: 0.2}},
        holders=(Holder(0, "Thread-1", "crc_update", where, 6, 6),),
    )
    assert is_cause(a, finding("LOP002"), finding("LOP006")) is writes
    assert is_cause(a, finding("LOP006"), finding("LOP002")) is not writes


@pytest.mark.parametrize(("share", "ends"), [(0.5, True), (0.49, False)])
def test_an_evaluation_explains_the_time_between_steps_in_which_it_ends(share: float, ends: bool) -> None:
    work = EvaluationWork("/job/train.py", 37, "metrics", "argmax", 9, 1.0, frozenset({("/job/train.py", 37)}))
    lines = (HotLine("/job/train.py", 37, "metrics", "argmax", 9, share, False),)
    a = jobs.job({0: jobs.rank(0.5)}, evaluation_work=work, hot_lines=lines)
    assert is_cause(a, finding("LOP003"), finding("LOP004")) is ends
    assert not is_cause(replace(a, evaluation_work=None), finding("LOP003"), finding("LOP004"))


PULSE = PeriodicStall(5.0, None, 90, 463, 0.0175, 0.123, 0.5, None, "forward", "", 463)


def stalling(waiting: float = 0.0, **given: Any) -> Any:
    held = jobs.job({0: jobs.rank(0.5)}, values={"threads.waiting": {0: waiting}}, cores=2.0)
    return replace(held, pulse=replace(PULSE, **given))


@pytest.mark.parametrize(
    ("given", "in_computing", "in_layers"),
    [
        ({}, True, True),
        ({"phase": "optimizer"}, True, False),
        ({"phase": "gap"}, False, False),
        ({"coincides": "waiting for a core"}, True, False),
        ({"coincides": "a checkpoint"}, False, False),
    ],
)
def test_stalls_are_in_computing_or_in_layers_by_phase_and_coincidence(
    given: dict[str, str], in_computing: bool, in_layers: bool
) -> None:
    held = [holds(name, stalling(**given)) for name in ("STALLS_IN_COMPUTING", "STALLS_IN_LAYERS")]
    assert held == [in_computing, in_layers]


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"waiting": 0.5}, True),
        ({"waiting": 0.49}, False),
        ({"waiting": 1.0, "phase": "gap"}, False),
        ({"waiting": 1.0, "coincides": "a checkpoint"}, False),
    ],
)
def test_stalls_are_for_cores_where_threads_of_the_ranks_wait_for_them(given: dict[str, Any], held: bool) -> None:
    assert holds("STALLS_FOR_CORES", stalling(**given)) == held


def holds(name: str, a: Any, cause: Finding | None = None, consequence: Finding | None = None) -> bool:
    return NAMED[name].holds(a, cause or finding("CPU003"), consequence or finding("COM001"))


def test_stalls_are_recognised_by_phase_and_coincidence() -> None:
    a, cause, other = stalling(phase="gap", coincides="a checkpoint"), finding("LOP001"), finding("RUN004")
    assert stalls_in("gap").holds(a, cause, other) and not stalls_in("input_wait").holds(a, cause, other)
    assert stalls_with("a checkpoint").holds(a, cause, other) and not stalls_with("GC").holds(a, cause, other)
    assert stalls_in("gap").words == "steps stall while they are between two steps"
    assert not stalls_in("gap").holds(replace(a, pulse=None), cause, other)


@pytest.mark.parametrize(("cost_s", "slows"), [(0.081, True), (0.079, False)])
def test_who_slows_the_wire_costs_nearly_as_much(cost_s: float, slows: bool) -> None:
    a = jobs.job({0: jobs.rank(0.5), 1: jobs.rank(0.5)}, values={"comm.wire_s": 0.1})
    assert holds("SLOWS_THE_WIRE", a, replace(finding("CPU001"), seconds_per_step=cost_s)) is slows


@pytest.mark.parametrize(("walls", "alike"), [({0: 1.0, 1: 1.1}, True), ({0: 1.0, 1: 1.11}, False), ({}, False)])
def test_batches_are_made_alike_within_a_tenth(walls: dict[int, float], alike: bool) -> None:
    own = {0: jobs.rank(0.5), 1: jobs.rank(0.5)}
    assert holds("MADE_ALIKE", jobs.job(own, values={"fetch.wall_s": walls})) is alike


def test_what_a_check_noted_of_either_finding_holds() -> None:
    a, plain = jobs.job({0: jobs.rank(0.5)}), finding("RUN003")
    noted: frozenset[Circumstance] = frozenset({"input grew"})
    for pair in ((replace(plain, circumstances=noted), plain), (plain, replace(plain, circumstances=noted))):
        assert holds("INPUT_GREW", a, *pair) and not holds("GAP_GREW", a, *pair)
    assert not holds("INPUT_GREW", a, plain, plain)


def test_a_worker_that_died_is_no_rank() -> None:
    a = jobs.job({0: jobs.rank(0.5)})
    died = Death(0, 100, 50.0, None, 9, False, "backward", 7)
    assert holds("A_RANK_DIED", replace(a, deaths=(died,)))
    assert not holds("A_RANK_DIED", replace(a, deaths=(replace(died, role="worker"),)))


def test_a_fatal_cause_and_one_of_some_ranks_hold_by_themselves() -> None:
    a = jobs.job({0: jobs.rank(0.5)})
    assert holds("FATAL", a, replace(finding("MEM001"), fatal=True)) and not holds("FATAL", a, finding("MEM001"))
    assert holds("ON_SOME_RANKS", a, finding("CPU003", 1)) and not holds("ON_SOME_RANKS", a, finding("CPU003"))
