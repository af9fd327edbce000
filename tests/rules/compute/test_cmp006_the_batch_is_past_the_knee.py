"""CMP006, the batch is past the point of diminishing returns: its table and its advice."""

from __future__ import annotations

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP006",
    pace_jobs.cmp006,
    lines={
        "gain": ({"fixed": 0.0499}, {"fixed": 0.05}),
        "memory": ({"peak": 0.8}, {"peak": 0.7999}),
    },
    false_alarms={
        "a large batch with memory left": {"peak": 0.5},
        "as a sweep has it": {"rates": {4: 100, 8: 105.1}},
    },
    also_fires={
        "as a sweep has it": {"fixed": 0.5, "rates": {4: 100, 8: 104.9}},
        "a sweep that falls": {"fixed": 0.5, "rates": {4: 100, 8: 90}},
        "a sweep of larger ones alone": {"rates": {8: 100, 16: 130}},
    },
    severities=(({}, "info"),),
    where=Where(SCRIPT, 42),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("rates", "advised", "words"),
    [
        ({2: 100, 4: 118, 8: 120}, 4, "2 % more samples/s after doubling the batch to 8"),
        ({2: 117, 4: 118, 8: 120}, 2, "2 % more samples/s"),
        ({2: 100, 4: 125, 8: 120}, 4, "4 % fewer samples/s after doubling the batch to 8"),
        ({3: 118, 8: 120}, 3, "more samples/s"),
    ],
)
def test_cmp006_advises_the_smallest_that_is_as_fast(rates: dict[float, float], advised: int, words: str) -> None:
    finding = found("CMP006", TABLE.job(rates=rates, fixed=0.5))
    assert finding.fixes[0].change == f"DataLoader(..., batch_size={advised})"
    assert words in finding.evidence[0].note and "a benchmark of this machine" in finding.evidence[0].note
