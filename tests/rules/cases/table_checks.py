"""What each rule's table is checked for: fires, on each line, beyond it, not measured, severity, what it names and promises. Not a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rn50_advisor.advisor.model.findings import SEVERITIES, Clear, Finding, NotMeasured, Outcome
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import without
from rule_runs import RULES, found
from rule_table import Given, Table

Check = Callable[[Table], None]


def outcome(table: Table, given: Given) -> Outcome:
    return run_rule(RULES[table.rule], table.job(**given), Config())


def every_threshold_has_a_line(table: Table) -> None:
    assert table.lines.keys() == RULES[table.rule].thresholds.keys()


def fires_and_names_ranks_place_and_evidence(table: Table) -> None:
    finding = found(table.rule, table.job())
    assert finding.rule == table.rule and finding.title
    assert finding.scope.ranks == table.ranks
    assert finding.fixes[0].title and finding.fixes[0].where == table.where
    assert finding.evidence and all(e.note for e in finding.evidence)
    assert 0.5 <= finding.confidence <= 1.0
    assert (finding.saving is None) == (finding.seconds_per_step == 0.0)


def its_severities_are_those_it_declares(table: Table) -> None:
    declared = RULES[table.rule].severities or SEVERITIES
    cases = [{}, *(given for given, _ in table.severities), *(fires for fires, _ in table.lines.values())]
    assert all(found(table.rule, table.job(**given)).severity in declared for given in cases)


def no_rule_breaks_without_what_it_does_not_list(table: Table) -> None:
    rule, analysis = RULES[table.rule], table.job()
    for name in {name for name, _ in analysis.values} - set(rule.needs):
        assert isinstance(run_rule(rule, without(analysis, name), Config()), (Finding, Clear, NotMeasured)), name


def each_line_is_where_its_threshold_says(table: Table, line: tuple[str, tuple[Given, Given]]) -> None:
    _, (fires, silent) = line
    assert isinstance(outcome(table, fires), Finding)
    assert outcome(table, silent) == Clear(table.rule)


def fires_as_well(table: Table, case: tuple[str, Given]) -> None:
    assert isinstance(outcome(table, case[1]), Finding), case[0]


def known_false_alarms_stay_silent(table: Table, case: tuple[str, Given]) -> None:
    assert outcome(table, case[1]) == Clear(table.rule), case[0]


def what_was_not_measured_is_not_clear(table: Table, case: tuple[str, tuple[Given, tuple[str, ...]]]) -> None:
    given, missing = case[1]
    assert outcome(table, given) == NotMeasured(table.rule, missing), case[0]


def severity_follows_the_share_that_is_lost(table: Table, case: tuple[Given, str]) -> None:
    assert found(table.rule, table.job(**case[0])).severity == case[1]


def what_is_needed_and_absent_is_not_measured(table: Table, need: str) -> None:
    assert run_rule(RULES[table.rule], without(table.job(), need), Config()) == NotMeasured(table.rule, (need,))


def too_few_steady_steps_are_not_measured(table: Table) -> None:
    assert outcome(table, {"steady": 4}) == NotMeasured(table.rule, ("step.steady",))
    assert isinstance(outcome(table, {"steady": 5}), Finding)


def savings_are_ordered_and_capped_by_the_next_bottleneck(table: Table) -> None:
    assert table.best is not None
    for given in ({}, table.best[0]):
        saving = found(table.rule, table.job(**given)).saving
        assert saving is not None and saving.basis
        low, high = saving.speedup
        assert 1.0 <= low <= high
        seconds = saving.seconds_per_step
        assert 0.0 <= seconds[0] <= seconds[1]
        for speedup, spared in zip(saving.speedup, seconds, strict=True):
            assert speedup == pytest.approx(table.step_s / (table.step_s - spared)), "both describe the same step"
    assert high == pytest.approx(table.best[1])


def a_threshold_of_the_users_moves_the_line(table: Table) -> None:
    moved = {name: {"output": 0.0}.get(name, 1e9) for name in RULES[table.rule].thresholds}
    assert run_rule(RULES[table.rule], table.job(), Config({table.rule: moved})) == Clear(table.rule)


# Those that run once, where they apply, and those that run for each entry of a part of the table.
ONCE: tuple[tuple[Check, Callable[[Table], Any]], ...] = (
    (every_threshold_has_a_line, lambda table: True),
    (fires_and_names_ranks_place_and_evidence, lambda table: True),
    (its_severities_are_those_it_declares, lambda table: True),
    (no_rule_breaks_without_what_it_does_not_list, lambda table: True),
    (too_few_steady_steps_are_not_measured, lambda table: RULES[table.rule].steady_steps),
    (savings_are_ordered_and_capped_by_the_next_bottleneck, lambda table: table.best),
    (a_threshold_of_the_users_moves_the_line, lambda table: RULES[table.rule].thresholds),
)
FOR_EACH: tuple[tuple[Callable[[Table, Any], None], Callable[[Table], Iterable[Any]]], ...] = (
    (each_line_is_where_its_threshold_says, lambda table: table.lines.items()),
    (fires_as_well, lambda table: table.also_fires.items()),
    (known_false_alarms_stay_silent, lambda table: table.false_alarms.items()),
    (what_was_not_measured_is_not_clear, lambda table: table.not_measured.items()),
    (severity_follows_the_share_that_is_lost, lambda table: table.severities),
    (what_is_needed_and_absent_is_not_measured, lambda table: RULES[table.rule].needs),
)


def checks(table: Table) -> list[Any]:
    """One parameter for each check of the table, and for each entry of its parts."""
    made = [pytest.param(check, id=check.__name__) for check, applies in ONCE if applies(table)]
    for check, part in FOR_EACH:
        made += [pytest.param(_of(check, entry), id=f"{check.__name__}-{n}") for n, entry in enumerate(part(table))]
    return made


def _of(check: Callable[[Table, Any], None], entry: Any) -> Check:
    return lambda table: check(table, entry)
