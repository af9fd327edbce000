"""DAT018, every item opens the same anew: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES, in_a_call
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.probes.documents.code_places import ReadWhole
from rule_cases import SCRIPT, without
from rule_runs import RULES, found
from rule_table import Table, waits
from table_checks import Check, checks

CALL = FrequentCall("zipfile.ZipFile", SampleLine("Zipped.__getitem__", SCRIPT, 12, 9, 12))


def dat018(wait: float = 0.4, share: float = 0.75, error: float = 0.05, *, cpu: float = 0.9, **more: Any) -> Analysis:
    return in_a_call("repeated", wait, share, error, cpu, **{"repeated": CALL, **more})


TABLE = Table(
    "DAT018",
    dat018,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "share": ({"share": 0.3}, {"share": 0.2999}),
        **CROWDED_LINES,
    },
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "a call that takes little of an item": {"share": 0.05},
        "no call that repeats": {"repeated": None, "share": 0.0},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 12),
    best=({}, 1 / (0.6 - 0.5 * 0.6 * 0.4)),
    also_fires={"a connection that is waited for": {"cpu": 0.1}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_call_and_its_line_are_named() -> None:
    finding = found("DAT018", dat018())
    assert finding.title == "Data loading: zipfile.ZipFile repeats the same work for every item"
    assert "9 of 12 stacks at Zipped.__getitem__ (train.py:12)" in finding.evidence[0].note
    assert finding.fixes[0].change.startswith("if self.kept is None")


@pytest.mark.parametrize("cpu", [0.1, 0.9])
def test_computing_and_waiting_in_the_call_both_go(cpu: float) -> None:
    saving = found("DAT018", dat018(share=1.0, error=0.0, cpu=cpu)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.6, 1 / 0.48), rel=0.1)


def test_without_stacks_it_is_not_measured() -> None:
    outcome = run_rule(RULES["DAT018"], without(dat018(), "loader.repeated_share"), Config())
    assert outcome == NotMeasured("DAT018", ("loader.repeated_share",))


def test_computing_is_done_once_in_init() -> None:
    at, also = SampleLine("Clips.__getitem__", SCRIPT, 14, 9, 12), SampleLine("Clips.__getitem__", SCRIPT, 13, 2, 12)
    finding = found("DAT018", dat018(repeated=FrequentCall("mel_bank", at, computes=True, more=(also,))))
    assert finding.title == "Data loading: mel_bank computes the same for every item"
    assert "uses nothing of the item: 9 of 12 stacks at Clips.__getitem__ (train.py:14)" in finding.evidence[0].note
    fix = finding.fixes[0]
    assert fix.where == Where(SCRIPT, 14) and "also Clips.__getitem__ (train.py:13)" in fix.title
    assert "__init__" in fix.change and "lru_cache" in fix.change


def test_an_archive_of_many_items_is_kept_open() -> None:
    finding = found("DAT018", dat018(repeated=replace(CALL, name="zipfile.ZipFile", whole="archive")))
    assert finding.title == "Data loading: zipfile.ZipFile opens an archive of many items for every item"
    assert finding.fixes[0].title == "keep the archives open, each worker its own"
    assert "opening an archive of many items" in finding.evidence[0].note


@pytest.mark.parametrize(
    ("whole", "says", "fix"),
    [
        ("array", "a whole array for every item", 'np.load(path)["images"]'),
        ("dataset", "a whole data set for every item", "without [:]"),
        ("file", "a whole file of many items for every item", "lru_cache"),
    ],
)
def test_what_is_read_whole_is_read_once(whole: ReadWhole, says: str, fix: str) -> None:
    finding = found("DAT018", dat018(repeated=replace(CALL, name="load", whole=whole)))
    assert finding.title == f"Data loading: load reads {says}" and fix in finding.fixes[0].change
    assert "reading a whole" in finding.evidence[0].note and finding.fixes[0].where == Where(SCRIPT, 12)
