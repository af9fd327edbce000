"""A result on a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from document_samples import TABLE, shown_in_all
from rn50_advisor.advisor.report import document_text
from rn50_advisor.advisor.report.document import (
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


def test_a_terminal_says_long_rows_as_lines_and_puts_what_has_no_column_below() -> None:
    below = replace(TABLE, rows=[TableRow(("a", "1", "because"), below=[("why: ", "because")])], text_columns=2)
    assert "a        1\n             why: because" in shown_in_all(below)["text"]
    said = shown_in_all(replace(TABLE, lines=[("a: ", "one of them")]))
    assert "  a: one of them" in said["text"] and "| a | 1 |" in said["md"]


def text(*blocks: Block) -> str:
    """What a terminal shows below the heading."""
    return shown_in_all(*blocks)["text"].partition("\n")[2].rstrip("\n")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Paragraph("so it is"), "  so it is"),
        (Paragraph("so it is", "why"), "  why    so it is"),
        (Paragraph("so it is", "why", tone="bad"), "why    so it is"),
        (Paragraph("by the way", kind="small"), "\n  by the way"),
        (Items(("a", "b"), bullet="- "), "  - a\n  - b"),
        (Items(("a", "b"), label="note"), "  note   a\n  note   b"),
        (Items("abc", text_most=1), "  a\n  2 more"),
        (Pairs((("cores", "8"), ("torch", "2.9"))), "\n  cores  8\n  torch  2.9"),
        (Section("Numbers", (Paragraph("1"),), aside="of one"), "\nNUMBERS  of one\n  1"),
        (Section("node5 is slow", (Paragraph("1"),), sentence=True), "\nnode5 is slow\n  1"),
        (Section("Numbers", (Paragraph("1"),), titled=("html",)), "\n  1"),
        (Paragraph("not here", only=("html", "md")), ""),
        (CodeLines("a\n  b"), "    a\n      b"),
        (CodeLines("-a\n+b", "diff"), "    -a\n    +b"),
    ],
)
def test_each_block_in_lines(block: Block, said: str) -> None:
    assert text(block) == said


def test_an_opening_is_a_line_with_its_label_and_what_belongs_to_it_follows() -> None:
    made = Document(
        "sample", "", "", (Opening("keep it", (Items(("sound",), bullet="- "),), "good", "✓"),), "s/1", dict
    )
    assert document_text.render(made) == "✓ keep it\n  - sound"
    assert document_text.lines(made)[0][1] == ("✓ ", "good")


def test_columns_stand_below_each_other_and_cells_are_cut() -> None:
    rows = [TableRow(("a", "1,000", "y" * 50)), TableRow(("longer", "2", "n"))]
    assert text(replace(TABLE, rows=rows)).split("\n") == [
        "  name     rate  note",
        "  a       1,000  " + "y" * 43 + "…",
        "  longer      2  n",
    ]


def test_names_give_way_until_all_fits_the_terminal() -> None:
    rows = [TableRow(("20250101-120000-" + "x" * 100 + "-end", "1", "n"))]
    made = Document(
        "s", "", "", (replace(TABLE, rows=rows, text_fits=True, text_cell=200),), "s/1", dict, text_width=60
    )
    _, row = document_text.render(made).split("\n")
    assert len(row) <= 60 and row.startswith("  …") and "x-end" in row


def test_wide_results_are_wrapped_at_their_own_width() -> None:
    made = Document("s", "", "", (Paragraph("word " * 40),), "s/1", dict, text_width=50)
    assert max(map(len, document_text.render(made).split("\n"))) <= 50
