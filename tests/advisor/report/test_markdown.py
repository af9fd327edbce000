"""The Markdown report, parsed as GitHub would: tables keep their columns, job strings stay text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import report_samples as samples
from rn50_advisor.advisor.report import render

OWN_HTML = re.compile(
    r"(<details><summary>(Evidence|The run|All numbers of workers|Machine and versions)</summary>|</details>)\n?"
)


def parsed(name: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(render(samples.ALL[name](), "md"))


def rows_of_tables(tokens: list[Token]) -> list[list[list[str]]]:
    tables: list[list[list[str]]] = []
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("td_open", "th_open"):
            tables[-1][-1].append(tokens[i + 1].content)
    return tables


@pytest.mark.parametrize("name", samples.ALL)
def test_every_row_has_the_columns_of_its_head(name: str) -> None:
    tables = rows_of_tables(parsed(name))
    assert tables
    for table in tables:
        assert {len(row) for row in table} == {len(table[0])}


@pytest.mark.parametrize("name", samples.ALL)
def test_no_table_loses_a_row_and_no_html_but_our_own_is_in_it(name: str) -> None:
    source, tokens = render(samples.ALL[name](), "md"), parsed(name)
    inside_fence = {n for token in tokens if token.type == "fence" and token.map for n in range(*token.map)}
    piped = [line for n, line in enumerate(source.split("\n")) if n not in inside_fence and line.startswith("| ")]
    rules = [line for line in piped if set(line) <= set("|-: ")]
    assert len(piped) - len(rules) == sum(map(len, rows_of_tables(tokens)))
    for token in tokens:
        if token.type == "html_block":
            assert OWN_HTML.fullmatch(token.content), token.content
        assert not any(child.type in ("html_inline", "link_open", "image") for child in token.children or [])


def test_details_are_closed() -> None:
    source = render(samples.hostile(), "md")
    assert len(re.findall("^<details>", source, re.M)) == len(re.findall("^</details>$", source, re.M)) > 0


def test_it_shows_the_verdict_the_fix_and_the_gain() -> None:
    tokens = parsed("bottleneck")
    heading = tokens[1].content
    assert heading == "▲ Bottleneck: Loading happens in the training process `DAT003`"
    fence = next(token for token in tokens if token.type == "fence")
    assert fence.info == "python" and "num_workers=6" in fence.content
    text = render(samples.bottleneck(), "md")
    assert "**Predicted gain:** about 2.5× faster (2.1–2.9×), saves 310–380 ms per step" in text
    assert "at `samples/train.py:142` (one line)" in text
    assert "- Ranks wait for a straggler `COM002`" in text


def test_a_command_with_pipes_survives_its_cell() -> None:
    report = samples.bottleneck()
    shown = render(replace(report, job=replace(report.job, argv=("sh", "-c", "a | b || c"))), "md")
    cells = [row for table in rows_of_tables(MarkdownIt("commonmark").enable("table").parse(shown)) for row in table]
    assert ["command", "`sh -c 'a | b || c'`"] in cells


def test_capacities_have_a_column_of_bars() -> None:
    table = next(t for t in rows_of_tables(parsed("bottleneck")) if t[0][0] == "stage")
    assert table[0] == ["stage", "samples/s", "", "interval", "basis"]
    bars = {row[0].partition(" ")[0].strip("*"): row[2] for row in table[1:]}
    assert bars == {
        "storage": "███▉",
        "preprocessing": "▎",
        "worker-to-loop": "",
        "compute": "▊",
        "communication": "█" * 12,
        "one": "▏",
    }
