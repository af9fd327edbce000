"""What the rules on loaders promise of waits that are not for batches, and how they speak of epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rule_cases as jobs
from rule_tables import TABLES

from advisor.core.analysis import Analysis
from advisor.core.config import Config
from advisor.core.findings import Finding
from advisor.engine import run_rule
from rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


@pytest.mark.parametrize("beside", ["step.epoch_start_s", "step.index_s"])
def test_dat003_promises_of_cheaper_samples_no_wait_that_is_for_something_else(beside: str) -> None:
    crowded = jobs.dat003(cores=2.0, job_cores=2.0)
    values = {**crowded.values, **{(beside, f"rank:{number}"): 0.1 for number in (0, 1)}}
    saving = found("DAT003", replace(crowded, values=values)).saving
    assert saving is not None and saving.speedup == pytest.approx((1.0, 1 / 0.7))
