"""A fix that names new values of a call's arguments carries them for an edit to be made of."""

from __future__ import annotations

import re

import pytest

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules
from rule_tables import TABLES

# `num_workers=2 → 6`, `persistent_workers=True`
_SAID = re.compile(r"\b([a-z_]+)=(?:\w+ → )?(\w+)\b")


_ARGUMENTS = {"num_workers", "persistent_workers", "prefetch_factor", "in_order", "find_unused_parameters"}


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.id in TABLES], ids=lambda rule: rule.id)
def test_what_a_title_says_is_what_the_edit_does(rule) -> None:
    outcome = run_rule(rule, TABLES[rule.id].job(), Config())
    for fix in outcome.fixes if isinstance(outcome, Finding) else ():
        arguments = {name: value for name, value in _SAID.findall(fix.title) if name in _ARGUMENTS}
        if arguments and fix.effort == "one line":
            assert isinstance(fix.call, CallChange), fix.change
            assert arguments.items() <= {name: str(value) for name, value in fix.call.arguments}.items()


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.id in TABLES], ids=lambda rule: rule.id)
def test_the_change_starts_with_the_call(rule) -> None:
    outcome = run_rule(rule, TABLES[rule.id].job(), Config())
    for fix in outcome.fixes if isinstance(outcome, Finding) else ():
        if re.match(r"\w+\(\.\.\., ", fix.change) and fix.effort == "one line":
            assert fix.call is not None and fix.change.startswith(str(fix.call))


def test_the_rules_on_loaders_and_ddp_ask_for_edits() -> None:
    asking = set()
    for rule in all_rules():
        outcome = run_rule(rule, TABLES[rule.id].job(), Config()) if rule.id in TABLES else None
        if isinstance(outcome, Finding) and any(isinstance(fix.call, CallChange) for fix in outcome.fixes):
            asking.add(rule.id)
    assert {"COM004", "DAT003", "DAT004", "DAT005", "DAT006", "DAT007", "DAT009", "DAT012"} <= asking
