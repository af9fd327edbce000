"""Runs one rule or all of them on an analysis, and reads what a finding says. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import Judgement, judge, run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}
STEP_S = 1.0  # a step of the jobs whose savings are given as the remaining share


def found(rule: str, analysis: Analysis) -> Finding:
    result = run_rule(RULES[rule], analysis, Config())
    assert isinstance(result, Finding), result
    return result


def judged(analysis: Analysis) -> Judgement:
    return judge(analysis, all_rules(), Config())


def all_words(finding: Finding) -> str:
    """All words of the finding."""
    return " ".join(
        [finding.title, *(e.note for e in finding.evidence), *(f"{f.title} {f.change}" for f in finding.fixes)]
    )


def best_step_s(finding: Finding) -> float:
    assert finding.saving is not None
    return STEP_S - finding.saving.seconds_per_step[1]


def warm_step_s(after_s: float) -> float:
    """Remaining share at best of a step of one second with warm caches."""
    return after_s * (1 - 0.15 * (1 - after_s))
