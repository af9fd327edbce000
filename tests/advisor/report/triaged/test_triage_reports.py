"""The triage in all its formats: the same verdict and numbers, and no string of the machine can break a page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

import triage_samples
from rn50_advisor.advisor.model.documents.machine_triage import (
    MADE_AT,
    UNIX_SECONDS,
    parse_triage,
)
from rn50_advisor.advisor.report.triaged import render
from rn50_advisor.advisor.triage.found_checks import Remedy, fact
from rn50_advisor.advisor.triage.triage_runner import conclude


def test_the_text_says_verdict_reason_numbers_and_gaps() -> None:
    text = render(triage_samples.made(), "text")
    assert text.startswith("▲ fix a setting\n")
    assert re.search(r"✗ bad +disk\.sequential_mb_per_s +20 MB/s +≥ 93\.8 MB/s", text)
    assert re.search(r"✓ ok +cpu\.steal_share +1 % +≤ 5 %|✓ ok +cpu\.steal_share +1\.0 % +≤ 5\.0 %", text)
    assert "expected: AWS gp3" in text and "NOT MEASURED" in text and "\x1b" not in text
    assert max(map(len, text.split("\n"))) <= 100


@pytest.mark.parametrize(
    ("remedy", "words"),
    [("fix", "fix a setting"), ("hand-back", "replace this machine"), ("note", "keep this machine")],
)
def test_each_verdict_has_its_words(remedy: Remedy, words: str) -> None:
    for format_ in ("text", "md", "html"):
        assert words in render(triage_samples.made(remedy), format_).lower()


def test_when_it_was_made_is_a_number_for_programs_and_a_time_for_people() -> None:
    triage = conclude([fact(MADE_AT, 1767225600.0, UNIX_SECONDS)])
    assert triage.as_json()["checks"][0]["value"] == 1767225600.0
    for format_ in ("text", "html"):
        assert "2026-01-01 00:00:00 UTC" in render(triage, format_)


def test_the_json_is_read_back() -> None:
    text = render(triage_samples.made(), "json")
    assert parse_triage(text) == triage_samples.made() and text.isascii()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.data += data
            self._inside = ""


def test_the_page_loads_nothing_and_nothing_breaks_out() -> None:
    page = render(triage_samples.made(), "html")
    tags = Tags()
    tags.feed(page)
    scripts = [attrs for tag, attrs in tags.seen if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "triage-data"}]
    assert json.loads(tags.data) == triage_samples.made().as_json()
    assert not [attrs for _, attrs in tags.seen if {"src", "href"} & set(attrs)]
    assert len(page) < 400_000


def test_a_table_in_markdown_keeps_its_columns() -> None:
    text = render(triage_samples.made(), "md")
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7, 4, 3}  # nobody has a note on a fact
    assert "<script>" not in text
