"""A fix that names new values of a call's arguments asks for them in words that an edit can be made of."""

from __future__ import annotations

import re

import pytest
from rule_tables import TABLES

from rn50_advisor.advisor.edits.fix_request import request_of
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules

# `num_workers=2 → 6`, `persistent_workers=True`
_SAID = re.compile(r"\b([a-z_]+)=(?:\w+ → )?(\w+)\b")
_ARGUMENTS = {"num_workers", "persistent_workers", "prefetch_factor", "in_order", "find_unused_parameters"}


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.id in TABLES], ids=lambda rule: rule.id)
def test_what_a_title_says_is_what_the_edit_does(rule) -> None:
    outcome = run_rule(rule, TABLES[rule.id].job(), Config())
    for fix in outcome.fixes if isinstance(outcome, Finding) else ():
        said = {name: value for name, value in _SAID.findall(fix.title) if name in _ARGUMENTS}
        request = request_of(fix.change)
        if said and fix.effort == "one line":
            assert request is not None, fix.change
            assert said.items() <= {name: str(value) for name, value in request.arguments.items()}.items()


def test_the_rules_on_loaders_and_ddp_ask_for_edits() -> None:
    asking = set()
    for rule in all_rules():
        outcome = run_rule(rule, TABLES[rule.id].job(), Config()) if rule.id in TABLES else None
        if isinstance(outcome, Finding) and any(request_of(fix.change) for fix in outcome.fixes):
            asking.add(rule.id)
    assert {"COM004", "DAT003", "DAT004", "DAT005", "DAT006", "DAT007", "DAT009", "DAT012"} <= asking
