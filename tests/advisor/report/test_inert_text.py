"""Strings of the job are made harmless without losing what they say."""

from __future__ import annotations

import json

import pytest
from markdown_it import MarkdownIt

from rn50_advisor.advisor.report import inert_text

MARKDOWN = MarkdownIt("commonmark").enable("table")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m text", "red text"),
        ("\x1b]0;new title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("a\nb\r\nc\td", "a b c d"),
        ("bell\x07 and \x9b31m", "bell and 31m"),
        ("\u202egnp.exe", "gnp.exe"),
        ("zero\u200bwidth", "zerowidth"),
        ("\udcff", "\ufffd"),
        ("größe 日本", "größe 日本"),
        (None, "None"),
    ],
)
def test_one_line_keeps_the_words_and_nothing_that_a_terminal_obeys(given: object, shown: str) -> None:
    assert inert_text.one_line(given) == shown


def test_long_strings_are_cut_and_the_cut_is_marked() -> None:
    assert inert_text.one_line("x" * 10_240, 50) == "x" * 49 + "…"
    assert len(inert_text.block("line\n" * 10_000, 200)) == 200


def test_a_block_keeps_its_lines() -> None:
    assert inert_text.block("def f():\r\n\treturn\x1b[0m 1\n") == "def f():\n    return 1"


def test_a_command_line_can_be_typed_again() -> None:
    assert inert_text.command_line(["sh", "-c", "a | b", ""]) == "sh -c 'a | b' ''"


@pytest.mark.parametrize(
    "text",
    [
        "num_workers=6 *and* `code` <b>bold</b> & [link](http://x) ~~no~~ #1",
        "- not a list",
        "1. not a list",
        "# not a heading",
        "> no quote",
        "=== no rule",
        "a|b",
        "back\\slash \\| pipe",
        "&amp; stays as typed",
        "</details>",
        "/close",
        "/data/train is no order",
        "owner/repo#12 and www.evil.example",
        "about 2.5× faster (2.1–2.9×)",
    ],
)
def test_markdown_text_is_shown_as_it_was(text: str) -> None:
    tokens = MARKDOWN.parse(inert_text.markdown(text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {child.type for child in children} <= {"text", "text_special"}
    assert "".join(child.content for child in children).replace("\u200b", "") == text


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`start", "a|b", "```\nfence"])
def test_code_spans_and_cells_hold_any_text(text: str) -> None:
    code = [
        child
        for child in MARKDOWN.parse(inert_text.markdown_code(text))[1].children or []
        if child.type == "code_inline"
    ]
    assert [child.content for child in code] == [inert_text.one_line(text)]
    table = MARKDOWN.parse(f"| a | b |\n| --- | --- |\n| {inert_text.markdown_cell_code(text)} | end |")
    cells = [table[i + 1] for i, token in enumerate(table) if token.type == "td_open"]
    assert [child.content for cell in cells for child in cell.children or []] == [inert_text.one_line(text), "end"]


@pytest.mark.parametrize("text", ["plain", "```", "````\n```", "~~~"])
def test_a_fenced_block_cannot_be_closed_from_inside(text: str) -> None:
    tokens = MARKDOWN.parse(inert_text.markdown_block(text, "python"))
    assert [(token.type, token.content) for token in tokens] == [("fence", text + "\n")]


def test_mentions_and_bare_links_do_not_ring() -> None:
    assert "@somebody" not in inert_text.markdown("mail @somebody")
    assert "http://" not in inert_text.markdown("http://evil.example")
    assert "www." not in inert_text.markdown("see www.evil.example").lower()
    assert "#1" not in inert_text.markdown("owner/repo#12")


def test_no_line_is_an_order_to_gitlab() -> None:
    assert inert_text.markdown("/merge") == "\\/merge" and inert_text.markdown("/close now").startswith("\\")
    assert inert_text.markdown("/data/train") == "/data/train"


def test_script_json_cannot_leave_its_element_and_reads_back() -> None:
    document = {"text": "</script><!--<script>&\u2028\udcff"}
    text = inert_text.script_json(document)
    assert "<" not in text and "&" not in text and text.isascii()
    assert json.loads(text) == document
