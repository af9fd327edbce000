"""Every rule against its table: fires, on each line, beyond it, not measured, false alarms, severity, what it names and promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rule_cases import without
from rule_table import Given, Table
from rule_tables import TABLES

from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Outcome
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def outcome(rule: str, **given: Any) -> Outcome:
    return run_rule(RULES[rule], TABLES[rule].job(**given), Config())


def found(rule: str, **given: Any) -> Finding:
    result = outcome(rule, **given)
    assert isinstance(result, Finding), result
    return result


def rows(pick: Callable[[Table], Any]) -> list[Any]:
    """One parameter for each entry of each rule's table."""
    return [
        pytest.param(rule, entry, id=f"{rule}-{n}") for rule in TABLES for n, entry in enumerate(pick(TABLES[rule]))
    ]


def test_every_rule_has_a_table() -> None:
    assert TABLES.keys() == RULES.keys()


@pytest.mark.parametrize("rule", TABLES)
def test_every_threshold_has_a_line_in_the_table(rule: str) -> None:
    assert TABLES[rule].lines.keys() == RULES[rule].thresholds.keys()


@pytest.mark.parametrize("rule", TABLES)
def test_fires_and_names_ranks_place_and_evidence(rule: str) -> None:
    finding, table = found(rule), TABLES[rule]
    assert finding.rule == rule and finding.title
    assert finding.scope.ranks == table.ranks
    assert finding.fixes[0].title and finding.fixes[0].where == table.where
    assert finding.evidence and all(e.note for e in finding.evidence)
    assert 0.5 <= finding.confidence <= 1.0
    assert (finding.saving is None) == (finding.seconds_per_step == 0.0)


@pytest.mark.parametrize(("rule", "line"), rows(lambda table: table.lines.items()))
def test_each_line_is_where_its_threshold_says(rule: str, line: tuple[str, tuple[Given, Given]]) -> None:
    _, (fires, silent) = line
    assert isinstance(outcome(rule, **fires), Finding)
    assert outcome(rule, **silent) == Clear(rule)


@pytest.mark.parametrize(("rule", "case"), rows(lambda table: table.also_fires.items()))
def test_fires_as_well(rule: str, case: tuple[str, Given]) -> None:
    assert isinstance(outcome(rule, **case[1]), Finding), case[0]


@pytest.mark.parametrize(("rule", "case"), rows(lambda table: table.false_alarms.items()))
def test_known_false_alarms_stay_silent(rule: str, case: tuple[str, Given]) -> None:
    assert outcome(rule, **case[1]) == Clear(rule), case[0]


@pytest.mark.parametrize(("rule", "case"), rows(lambda table: table.unseen.items()))
def test_a_part_that_nobody_saw_is_not_clear(rule: str, case: tuple[str, tuple[Given, tuple[str, ...]]]) -> None:
    given, missing = case[1]
    assert outcome(rule, **given) == NotMeasured(rule, missing), case[0]


@pytest.mark.parametrize(("rule", "case"), rows(lambda table: table.severities))
def test_severity_follows_the_share_that_is_lost(rule: str, case: tuple[Given, str]) -> None:
    assert found(rule, **case[0]).severity == case[1]


@pytest.mark.parametrize(("rule", "need"), [(rule, need) for rule in TABLES for need in RULES[rule].needs])
def test_what_is_needed_and_absent_is_not_measured(rule: str, need: str) -> None:
    assert run_rule(RULES[rule], without(TABLES[rule].job(), need), Config()) == NotMeasured(rule, (need,))


@pytest.mark.parametrize("rule", [rule for rule in TABLES if RULES[rule].steady_steps])
def test_too_few_steady_steps_are_not_measured(rule: str) -> None:
    assert run_rule(RULES[rule], TABLES[rule].job(steady=4), Config()) == NotMeasured(rule, ("step.steady",))
    assert isinstance(outcome(rule, steady=5), Finding)


@pytest.mark.parametrize("rule", TABLES)
def test_no_rule_breaks_without_what_it_does_not_list(rule: str) -> None:
    analysis = TABLES[rule].job()
    for name in {name for name, _ in analysis.values} - set(RULES[rule].needs):
        assert isinstance(run_rule(RULES[rule], without(analysis, name), Config()), (Finding, Clear, NotMeasured)), name


@pytest.mark.parametrize("rule", [rule for rule in TABLES if TABLES[rule].best])
def test_savings_are_ordered_and_capped_by_the_next_bottleneck(rule: str) -> None:
    best = TABLES[rule].best
    assert best is not None
    for given in ({}, best[0]):
        saving = found(rule, **given).saving
        assert saving is not None and saving.basis
        low, high = saving.speedup
        assert 1.0 <= low <= high
        seconds = saving.seconds_per_step
        assert 0.0 <= seconds[0] <= seconds[1]
        for speedup, spared in zip(saving.speedup, seconds, strict=True):
            step_s = TABLES[rule].step_s
            assert speedup == pytest.approx(step_s / (step_s - spared)), "both say the same of this step"
    assert high == pytest.approx(best[1])


@pytest.mark.parametrize("rule", [rule for rule in TABLES if RULES[rule].thresholds])
def test_a_threshold_of_the_users_moves_the_line(rule: str) -> None:
    moved = {name: {"output": 0.0}.get(name, 1e9) for name in RULES[rule].thresholds}
    config = Config({rule: moved})
    assert run_rule(RULES[rule], TABLES[rule].job(), config) == Clear(rule)
