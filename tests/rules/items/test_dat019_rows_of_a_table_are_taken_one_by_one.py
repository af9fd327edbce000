"""DAT019, rows of a table are taken one by one: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES, in_a_call
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, without
from rule_runs import RULES, found
from rule_table import Table, waits
from table_checks import Check, checks

CALL = FrequentCall("pandas", SampleLine("Table.__getitem__", SCRIPT, 12, 9, 12))


def dat019(wait: float = 0.4, share: float = 0.75, error: float = 0.05, *, cpu: float = 0.9, **more: Any) -> Analysis:
    return in_a_call("table", wait, share, error, cpu, **{"table": CALL, **more})


TABLE = Table(
    "DAT019",
    dat019,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "share": ({"share": 0.3}, {"share": 0.2999}),
        **CROWDED_LINES,
    },
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "a table that takes little of an item": {"share": 0.05},
        "no table": {"table": None, "share": 0.0},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 12),
    best=({}, 1 / (0.6 - 0.5 * 0.6 * 0.4)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_table_and_the_line_are_named() -> None:
    finding = found("DAT019", dat019())
    assert finding.title == "Data loading: pandas called for each item"
    assert "inside pandas: 9 of 12 stacks at Table.__getitem__ (train.py:12)" in finding.evidence[0].note
    assert "to_numpy" in finding.fixes[0].change


def test_at_worst_arrays_take_a_fifth_of_the_time() -> None:
    saving = found("DAT019", dat019(share=1.0, error=0.0)).saving
    assert saving is not None and saving.speedup[0] < 1 / 0.6 < saving.speedup[1]


def test_without_stacks_it_is_not_measured() -> None:
    outcome = run_rule(RULES["DAT019"], without(dat019(), "loader.table_share"), Config())
    assert outcome == NotMeasured("DAT019", ("loader.table_share",))
