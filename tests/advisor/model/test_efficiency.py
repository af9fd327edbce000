"""The training efficiency score: the worked example of the docs, its limits, and the cases without a score."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.efficiency import efficiency
from rn50_advisor.advisor.model.report import Budget, Report

DOC = Path(__file__).parents[3] / "docs" / "efficiency.md"


def with_phases(report: Report, **phases: float) -> Report:
    return replace(report, budget=Budget({**report.budget.critical, **phases}))


def test_the_worked_example_of_the_docs_is_what_the_function_says() -> None:
    example = DOC.read_text().split("## A worked example", 1)[1].split("\n## ", 1)[0]
    shown = dict(re.findall(r"^\| ([a-z_.]+) \| +([\d.]+) ms", example, re.M))
    lost = re.search(r"DAT003 +costs ([\d.]+) ms", example)
    assert lost and "| forward |" in example
    account = {phase: float(ms) / 1000 for phase, ms in shown.items()}
    finding = replace(samples.LOADER, seconds_per_step=float(lost[1]) / 1000)
    report = replace(samples.bottleneck(), budget=Budget(account), findings=(finding,))
    assert re.search(rf"^\*\*Score: {efficiency(report).score}\*\*", example, re.M)


def test_it_is_the_share_of_compute_on_the_critical_path() -> None:
    found = efficiency(samples.healthy())
    assert found.score == 97  # (31 + 69.2 + 2.1) of 105.5 ms
    assert (found.lost_s, found.lost_to) == (0.0, "")


def test_a_loss_within_compute_lowers_it_too() -> None:
    slow = replace(samples.STRAGGLER, rule="CMP001", seconds_per_step=0.5 * 0.1055, explained_by=None)
    found = efficiency(replace(samples.healthy(), findings=(slow,)))
    assert (found.score, found.lost_to) == (50, "CMP001")


def test_losses_are_not_added_for_they_may_be_the_same_time() -> None:
    losses = tuple(replace(samples.STRAGGLER, rule=f"CMP00{n}", seconds_per_step=0.05) for n in (1, 2, 3))
    assert efficiency(replace(samples.healthy(), findings=losses)).score == 53


def test_it_stays_between_0_and_100() -> None:
    lost = replace(samples.LOADER, seconds_per_step=9.0)
    assert efficiency(replace(samples.bottleneck(), findings=(lost,))).score == 0
    assert efficiency(replace(samples.healthy(), budget=Budget({"forward": 0.1}))).score == 100


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (samples.dead_rank(), "failed"),
        (samples.hang(), "failed"),
        (samples.young(), "0 steady steps"),
        (
            replace(samples.bottleneck(), step_time=replace(samples.bottleneck().step_time, steady_steps=29)),
            "29 steady",
        ),
        (
            replace(samples.bottleneck(), verdict=replace(samples.bottleneck().verdict, state="inconclusive")),
            "inconclusive",
        ),
        (replace(samples.bottleneck(), budget=Budget()), "not divided"),
        (with_phases(samples.bottleneck(), unattributed=0.2), "unattributed"),
        (with_phases(samples.bottleneck(), input_or_forward=0.1), "no loader"),
        (with_phases(samples.bottleneck(), forward=float("nan")), "not divided"),
        (replace(samples.bottleneck(), findings=(replace(samples.LOADER, seconds_per_step=0.0),)), "DAT003"),
    ],
)
def test_without_what_it_needs_there_is_no_score_but_a_reason(report: Report, why: str) -> None:
    found = efficiency(report)
    assert found.score is None and why in found.unknown
