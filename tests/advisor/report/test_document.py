"""What every format leaves out of a result, cuts or says in its own way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from document_samples import TABLE, shown_in_all
from rn50_advisor.advisor.report.document import (
    CodeLines,
    Items,
    Opening,
    Paragraph,
    Section,
    Table,
    TableRow,
    has_code,
    shown,
)


def test_columns_that_nobody_filled_are_left_out_and_the_others_keep_their_side() -> None:
    [table] = shown([replace(TABLE, left=(0, 1, 2), names=2, text_columns=3)], "md")
    assert isinstance(table, Table)
    assert (list(table.head), table.left, table.names, table.text_columns) == (["name", "rate"], (0, 1), None, 2)


def test_a_section_in_which_nothing_is_left_has_no_title() -> None:
    blocks = (Items(()), replace(TABLE, rows=()), Paragraph("said elsewhere", only=("html",)))
    said = shown_in_all(Section("Of no use", blocks))
    assert "Of no use" not in said["md"] and "OF NO USE" not in said["text"] and "Of no use" in said["html"]


def test_lines_to_copy_are_found_wherever_they_are() -> None:
    assert has_code([Section("", (Opening("", (CodeLines("a"),)),))]) and not has_code([Section("", (TABLE,)), TABLE])


@pytest.mark.parametrize(("format", "most"), [("text", 40), ("md", 60), ("html", 60)])
def test_rows_that_are_not_shown_are_counted(format: str, most: int) -> None:
    rows = [TableRow((f"row{n}", "1", "x")) for n in range(100)]
    said = shown_in_all(replace(TABLE, rows=rows))[format]
    assert f"row{most - 1}" in said and f"row{most}" not in said and f"{100 - most} more are in the JSON" in said
