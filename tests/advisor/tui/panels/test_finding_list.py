"""The findings in reading order, under keys that stay the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.findings import Affected, Finding
from rn50_advisor.advisor.tui.panels.finding_detail import finding_lines
from rn50_advisor.advisor.tui.panels.finding_list import (
    FindingList,
    finding_key,
    in_reading_order,
    is_symptom,
    scope_words,
)
from tui_doubles import Reports, settle, shown


def finding(rule: str, by: str | None = None, scope: Affected | None = None) -> Finding:
    return replace(samples.CHECKPOINT, rule=rule, explained_by=by, scope=scope or Affected())


@pytest.mark.parametrize(
    ("found", "order"),
    [
        ([], []),
        ([("A", None), ("B", None), ("C", "A")], ["A", "C", "B"]),
        ([("A", "absent"), ("B", "A")], ["A", "B"]),
        ([("A", "A")], ["A"]),
        ([("A", "B"), ("B", "A"), ("C", None)], ["C", "A", "B"]),
        ([("C", "B"), ("B", "A"), ("A", None)], ["A", "B", "C"]),
    ],
)
def test_each_stands_below_what_explains_it_and_none_is_lost(
    found: list[tuple[str, str | None]], order: list[str]
) -> None:
    assert [f.rule for f in in_reading_order(tuple(finding(*one) for one in found))] == order


def test_a_key_is_of_the_rule_and_its_scope_not_of_its_numbers() -> None:
    one = finding("GPU001", scope=Affected(ranks=(0, 1), gpus=(2,), hosts=("a",)))
    assert finding_key(one) == finding_key(replace(one, seconds_per_step=9.0, title="other")) == "GPU001|0,1|2|a"
    assert finding_key(one) != finding_key(replace(one, scope=Affected(ranks=(0,))))


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (Affected(), "whole job"),
        (Affected(ranks=(1,)), "rank 1"),
        (Affected(ranks=tuple(range(9))), "ranks 0, 1, 2, 3, 4, 5 and 3 more"),
        (
            Affected(gpus=(0, 1), hosts=("a", "b", "c", "d"), since_step=1200),
            "GPUs 0, 1 · on a, b, c · since step 1,200",
        ),
    ],
)
def test_whom_it_is_about(scope: Affected, words: str) -> None:
    assert scope_words(finding("A", scope=scope)) == words


def test_a_symptom_has_neither_a_severity_nor_a_gain_of_its_own() -> None:
    cause = replace(samples.LOADER, severity="high")
    gain = replace(samples.LOADER.saving, speedup=(4.0, 9.0), likely=6.0)  # type: ignore[type-var]
    symptom = replace(samples.STRAGGLER, severity="critical", saving=gain)
    shown_list = FindingList()
    shown_list.report = replace(samples.running(), findings=(cause, symptom))
    first, below = (shown_list._prompt(f, 90).plain for f in (cause, symptom))
    assert "▲ high" in first and "2.5×" in first
    assert "└ ○ symptom" in below and "critical" not in below and "×" not in below
    assert not is_symptom(symptom, replace(samples.running(), findings=(symptom,))), "its cause is not there"
    detail = "\n".join(content.plain for content in finding_lines(symptom, shown_list.report, 90))
    assert "○ SYMPTOM" in detail and "Gain" not in detail and "→ explained by DAT003" in detail


async def test_the_cursor_stays_on_its_finding_when_others_come_before_it() -> None:
    report = samples.running()
    async with shown(Reports(report), (140, 45)) as (app, pilot):
        listed = app.query_one("#finding-list-short", FindingList)
        key = finding_key(report.findings[2])
        listed.select_key(key)
        listed.select_key("no such key")
        assert listed.selected_key() == key
        listed.show(replace(report, findings=(finding("NEW001"), *report.findings)))
        await settle(app, pilot)
        assert listed.selected_key() == key and listed.option_count == 4 and listed.border_title == "Findings · 4"
        listed.show(replace(report, findings=()))
        await settle(app, pilot)
        assert listed.selected_key() is None and listed.border_title == "Findings · none"
