"""CMP024, the backward pass of indexing takes the time: its table, and its two kinds of advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp024(
    parts: float = 0.2, *, rows: float = 0.0, backward: float = 0.6, samples: int = 80, timed: bool = True, **more: Any
) -> Analysis:
    """A rank that spends so many seconds of its second on such nodes."""
    lines = tuple(replace(hot(line, "forward", io=False), samples=samples) for line in (57, 91))
    values = {"step.parts_s": {0: parts}, "step.rows_s": {0: rows}} if timed else {}
    own = {0: rank(forward=1.0 - backward, backward=backward)}
    return job(own, values=values, **{"part_lines": lines[:1], "row_lines": lines[1:], **more})


TABLE = Table(
    "CMP024",
    cmp024,
    lines={"indexing": ({"parts": 0.0601}, {"parts": 0.0599})},
    false_alarms={
        "few rows": {"parts": 0.0, "rows": 0.05},
        "neither": {"parts": 0.0},
        "rows that no line is seen to take by a tensor of indices": {"parts": 0.0, "rows": 0.3, "row_lines": ()},
        "a recurrent layer of torch that takes packed time steps": {
            "part_lines": (),
            "facts": {"0": {"model": {"layers": {"LSTM": 1}}}},
        },
        "on a GPU": {"facts": {"0": {"cuda": {"devices": 1}}}},
    },
    severities=(({"parts": 0.3}, "critical"), ({"parts": 0.15}, "high"), ({"parts": 0.0601}, "medium")),
    where=Where(SCRIPT, 57),
    also_fires={
        "parts without a line": {"part_lines": ()},
        "parts of a line beside a recurrent layer": {"facts": {"0": {"model": {"layers": {"LSTM": 1}}}}},
    },
    not_measured={"no pass was timed": ({"timed": False}, ("step.parts_s", "step.rows_s"))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_parts_are_taken_at_once_and_rows_by_another_operation() -> None:
    parts, rows = found("CMP024", cmp024()), found("CMP024", cmp024(0.1, rows=0.3))
    assert "unbind" in parts.fixes[0].title and "index_select" not in parts.fixes[0].title
    assert "index_select" in rows.fixes[0].title and rows.fixes[0].where == Where(SCRIPT, 91)
    assert "train.py:57 in forward" in parts.evidence[1].note


def test_with_too_few_samples_no_line_is_named() -> None:
    finding = found("CMP024", cmp024(samples=9))
    assert finding.fixes[0].where is None and len(finding.evidence) == 1


def test_the_gain_lies_around_the_time_of_the_nodes_and_within_the_backward_pass() -> None:
    saving = found("CMP024", cmp024(0.2)).saving
    assert saving is not None
    assert saving.seconds_per_step[0] < 0.2 < saving.seconds_per_step[1]
    most = found("CMP024", cmp024(0.5)).saving
    assert most is not None and most.seconds_per_step[1] <= 0.6


def test_an_lstm_gets_padded_batches_instead_of_packed_ones() -> None:
    lstm = {"0": {"model": {"layers": {"LSTM": 1}}}}
    a = cmp024(0.1, backward=0.6, part_lines=(), packing_lines=((SCRIPT, 61),), facts=lstm)
    finding = found("CMP024", a)
    assert finding.title.startswith("Packed sequences") and finding.fixes[0].where == Where(SCRIPT, 61)
    assert "check the accuracy" in finding.fixes[0].change
    assert finding.saving is not None
    assert finding.saving.speedup == pytest.approx((1 / 0.87, 1 / 0.68), rel=0.02), "forward and backward pass"
    assert "unbind" in found("CMP024", cmp024(0.1, packing_lines=((SCRIPT, 61),), facts=lstm)).fixes[0].title, (
        "a line that takes parts is the nearer cause"
    )


def test_even_without_packing_an_lstm_takes_some_time() -> None:
    facts = {"0": {"model": {"layers": {"LSTM": 1}}}}
    saving = found(
        "CMP024", cmp024(0.5, backward=0.9, part_lines=(), packing_lines=((SCRIPT, 61),), facts=facts)
    ).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.15, rel=0.02)
