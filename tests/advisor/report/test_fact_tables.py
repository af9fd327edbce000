"""Storage and communication stand in tables of their own, and no string of a machine breaks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import fact_tables, render
from rn50_advisor.advisor.report.styled_lines import plain

STORAGE = {"location": "/data (ext4 on sdb)", "reads": "98 % from memory"}
EXCHANGE = {"network transfer": "30 ms exposed"}


def report(**facts: Any) -> Report:
    return replace(samples.healthy(), facts=facts)


def test_storage_comes_first_and_the_wire_after_it() -> None:
    assert fact_tables.tables(report(exchange=EXCHANGE, storage=STORAGE)) == [
        ("storage", "Storage", [*STORAGE.items()]),
        ("exchange", "Communication between the ranks", [*EXCHANGE.items()]),
    ]


@pytest.mark.parametrize("facts", [{}, {"storage": {}}, {"storage": "ext4"}, {"storage": None, "exchange": [1]}])
def test_what_says_nothing_has_no_table(facts: dict[str, Any]) -> None:
    assert fact_tables.tables(report(**facts)) == fact_tables.text_lines(report(**facts)) == []
    assert fact_tables.markdown_lines(report(**facts)) == []


def test_in_text_values_stand_beside_one_another_and_long_ones_are_cut() -> None:
    lines = plain(fact_tables.text_lines(report(storage={**STORAGE, "through": "word " * 100}, exchange=EXCHANGE)))
    first, *rows = lines.split("\n")
    assert first == "STORAGE" and rows[0] == "  location           /data (ext4 on sdb)"
    assert rows[4].endswith("…") and rows[5:7] == ["", "COMMUNICATION BETWEEN THE RANKS"]


def test_in_markdown_rows_keep_their_columns() -> None:
    lines = fact_tables.markdown_lines(report(storage={"a|b": "<b>c</b>\nd"}, exchange=EXCHANGE))
    assert lines[0] == "## Storage" and lines.count("") == 3
    (row,) = [line for line in lines if "a" in line and line.startswith("| a")]
    assert row.replace("\\|", "").count("|") == 3 and "<b>" not in row


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_every_format_has_them(format: str) -> None:
    shown = " ".join(render(report(storage=STORAGE), format).split())
    assert "98 % from memory" in shown and "storage" in shown.lower()


def test_long_labels_have_room_and_the_longest_are_cut() -> None:
    lines = {"train.py:34": "14 % of the step", "AddmmBackward0ForSparseMatrices": "9 %", "x" * 60: "8 %"}
    _, *rows = plain(fact_tables.text_lines(report(lines=lines))).split("\n")
    assert [row.index("%") for row in rows] == [row.rindex("%") for row in rows]
    assert len({row.index(value) for row, value in zip(rows, ("14", "9", "8"), strict=True)}) == 1
    assert rows[2].startswith(f"  {'x' * 31}…  8 %")
