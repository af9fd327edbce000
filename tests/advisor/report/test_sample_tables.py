"""The table of cost of a sample, in each report: names are the user's and must do no harm."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from report_samples import bottleneck
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SamplePart, sample_facts
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import html, markdown, text

PARTS = (
    SamplePart("transform", "<b>Blur|`x`</b>", "/job/data.py", 7, 0.006, 0.006, 0.6, 0.02),
    SamplePart("load", "default_loader", "", 0, 0.003, 0.003, 0.3, 0.02),
    SamplePart("rest", "ImageFolder.__getitem__", "", 0, 0.001, 0.001, 0.1, 0.01),
)
COST = SampleCost(240, 0.01, 0.012, PARTS, 0.002, 4_000_000, 500.0, 375.0, 110_000.0)


@pytest.fixture
def report() -> Report:
    made = bottleneck()
    return replace(made, facts={**made.facts, **sample_facts(COST)})


def test_text_has_a_row_a_part_and_one_line_on_the_batch(report: Report) -> None:
    shown = text.render(report)
    assert "COST PER SAMPLE" in shown
    row = next(line for line in shown.splitlines() if "default_loader (open and decode)" in line)
    assert "3.00 ms" in row and "30 %" in row
    assert "/job/data.py:7" in shown and "240 profiled" in shown and "pictures of 500×375" in shown


def test_markdown_and_html_escape_the_users_names(report: Report) -> None:
    shown = markdown.render(report)
    assert "## Cost per sample" in shown and "6.00 ms" in shown
    assert "<b>Blur" not in shown and "Blur|`x`" not in shown
    page = html.render(report)
    assert 'id="samples"' in page and "&lt;b&gt;Blur|`x`&lt;/b&gt;" in page and "<b>Blur" not in page


def test_the_facts_are_shown_once(report: Report) -> None:
    for shown in (text.render(report), markdown.render(report), html.render(report)):
        assert "sample.cpu_s" not in shown.split('type="application/json"')[0]


def test_the_table_survives_the_way_through_json(report: Report) -> None:
    again = from_json(json.loads(json.dumps(report.as_json())))
    assert text.render(again) == text.render(report)


def test_without_looks_there_is_no_table() -> None:
    for render in (text.render, markdown.render, html.render):
        assert "sample costs" not in render(bottleneck()).lower()
