"""A result as Markdown: headings, lists and tables that no string of a machine can break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from document_samples import TABLE, shown_in_all
from rn50_advisor.advisor.report import document_markdown
from rn50_advisor.advisor.report.document import (
    Bar,
    Bars,
    Block,
    CodeLines,
    Document,
    Items,
    Opening,
    Pairs,
    Paragraph,
    Section,
    TableRow,
)


def markdown(*blocks: Block) -> str:
    """Below the heading."""
    return shown_in_all(*blocks)["md"].partition("\n\n")[2]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Paragraph("so it is"), "so it is"),
        (Paragraph("so it is", "why"), "**Why:** so it is"),
        (Paragraph("so it is", "why", "lead"), "so it is"),
        (Paragraph("by the way", kind="small"), "<sub>by the way</sub>"),
        (Items(("a", "b"), bullet="▼ ", label="note"), "- a\n- b"),
        (Items("abc", most=1), "- a\n- 2 more"),
        (Pairs((("cores", "8"), ("torch", "2"))), "<sub>cores: 8; torch: 2</sub>"),
        (Section("Numbers", (Paragraph("1"),), aside="of one"), "## Numbers: of one\n\n1"),
        (Section("A", (Section("B", (Paragraph("1"),)),)), "## A\n\n### B\n\n1"),
        (Section("A", (Paragraph("1"),), titled=("html",)), "1"),
        (Bars((Bar("a", "1", "", 1.0),), "images/s"), ""),
        (CodeLines("a\n```"), "````\na\n```\n````"),
        (CodeLines("-a\n+b", "diff"), "```diff\n-a\n+b\n```"),
        (CodeLines(" \n"), ""),
    ],
)
def test_each_block_in_paragraphs(block: Block, said: str) -> None:
    assert markdown(block) == said


def test_an_opening_is_the_heading() -> None:
    made = Document("s", "", "", (Opening("keep it", (Paragraph("sound"),), "good", "✓"),), "s/1", dict)
    assert document_markdown.render(made) == "# ✓ keep it\n\nsound"


def test_numbers_stand_to_the_right_and_rows_beyond_the_most_are_counted() -> None:
    rows = [TableRow(("a", "1", "x")), TableRow(("b", "2", "y")), TableRow(("c", "3", "z"))]
    assert markdown(replace(TABLE, rows=rows, most=2)).split("\n") == [
        "| name | rate | note |",
        "| --- | ---: | --- |",
        "| a | 1 | x |",
        "| b | 2 | y |",
        "",
        "1 more are in the JSON.",
    ]


@pytest.mark.parametrize("hostile", ["a|b", "x\ny", "<b>", "`|`", "[a](http://b)", "\x1b[31m"])
def test_a_cell_stays_one_cell(hostile: str) -> None:
    row = markdown(replace(TABLE, rows=[TableRow((hostile, "1", "end"))])).split("\n")[2]
    assert row.replace("\\|", "").count("|") == 4 and row.endswith("| 1 | end |")
    assert "<b>" not in row and "\x1b" not in row and "](" not in row.replace("\\]", "")


def test_long_cells_are_cut() -> None:
    row = markdown(replace(TABLE, rows=[TableRow(("x" * 500, "1", "y"))], cell_most=50)).split("\n")[2]
    assert row == f"| {'x' * 49}… | 1 | y |"
