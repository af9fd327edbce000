"""Which rules a finding would explain, and be explained by, had they fired. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.rules.causes import BY_PAIR, is_cause


def would_explain(a: Analysis, finding: Finding) -> set[str]:
    return {other for rule, other in BY_PAIR if rule == finding.rule and is_cause(a, finding, _other(other))}


def would_be_explained_by(a: Analysis, finding: Finding) -> set[str]:
    return {rule for rule, other in BY_PAIR if other == finding.rule and is_cause(a, _other(rule), finding)}


def _other(rule: str) -> Finding:
    return Finding(rule, "it fired", "high", 0.9, 0.1)
