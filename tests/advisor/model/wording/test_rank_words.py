"""The processes that train are ranks of one job, or processes beside each other; and where each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.wording.rank_words import in_phase, ranks
from rn50_advisor.advisor.report import render, text

ALONE: Mapping[str, object] = {"world_size": -1}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"0": ALONE, "1": ALONE}, "2 processes"),
        ({"0": {**ALONE, "group_size": 2}, "1": {**ALONE, "group_size": 2}}, "2 ranks"),
        ({"0": {"world_size": 2}, "1": {"world_size": 2}}, "2 ranks"),
        ({"0": {**ALONE, "ddp": [{}]}, "1": ALONE}, "2 ranks"),
        ({"0": ALONE, "1": {}}, "2 ranks"),
        ({}, "2 ranks"),
    ],
    ids=["neither group nor launcher", "group", "launcher", "DDP", "facts of one are unknown", "no facts"],
)
def test_processes_are_ranks_if_they_joined_a_group_or_a_launcher_made_them(
    facts: Mapping[str, object], said: str
) -> None:
    report = replace(samples.bottleneck(), facts=facts)
    report = replace(report, job=replace(report.job, ranks=2))
    assert ranks(report) == said
    assert f" · {said} · " in text.summary(report) and f"{said}, " in render(report, "text")


def test_one_is_a_rank() -> None:
    report = samples.bottleneck()
    assert ranks(replace(report, job=replace(report.job, ranks=1), facts={"0": ALONE})) == "1 rank"


@pytest.mark.parametrize(
    ("phase", "said"), [("gap", "between steps"), ("backward", "in backward"), ("", "in an unknown phase")]
)
def test_where_a_rank_is_reads_as_a_part_of_a_sentence(phase: str, said: str) -> None:
    assert in_phase(phase) == said
