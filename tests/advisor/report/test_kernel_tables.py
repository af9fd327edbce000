"""Deep windows in each report: names of kernels and operators are the job's and must do no harm."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deep_events import deep_window
from report_samples import bottleneck
from rn50_advisor.advisor.model.gpu.kernel_classes import KernelRow, deep_facts
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import html, markdown, text

HOSTILE = KernelRow("<b>kernel|`x`</b>", "conv", 0.003, 2.0, True, "aten::<i>convolution</i>", "32×64×56×56")


@pytest.fixture
def report() -> Report:
    window = replace(deep_window(), rows=(HOSTILE, *deep_window().rows), trace="deep-rank0.json.gz", cost_s=0.6)
    made = bottleneck()
    return replace(made, facts={**made.facts, **deep_facts((window,))})


def test_text_shows_classes_idle_time_and_the_longest_kernels(report: Report) -> None:
    shown = text.render(report)
    assert "PROFILED WITH TORCH'S PROFILER" in shown and "rank 0 on NVIDIA A100-SXM4-80GB, steps 10–11" in shown
    assert "convolutions 4.00 ms (50 %)" in shown and "tensor cores: 100 %" in shown
    assert "idle in a step: 2.00 ms waiting for launches" in shown
    assert "looking took the rank 600 ms, once" in shown and "deep-rank0.json.gz" in shown
    row = next(line for line in shown.splitlines() if "convolutions, tensor cores" in line)
    assert "4.00 ms" in row or "3.00 ms" in row


def test_markdown_and_html_escape_names(report: Report) -> None:
    shown = markdown.render(report)
    assert "## Profiled with torch's profiler" in shown and "<b>kernel" not in shown.replace("`<b>kernel", "")
    page = html.render(report)
    assert 'id="deep"' in page and "&lt;b&gt;kernel|`x`&lt;/b&gt;" in page and "<b>kernel" not in page


def test_the_facts_are_shown_once_and_survive_json(report: Report) -> None:
    for render in (text.render, markdown.render, html.render):
        assert "tensor_core_share" not in render(report).split('type="application/json"')[0]
    again = from_json(json.loads(json.dumps(report.as_json())))
    assert text.render(again) == text.render(report)


def test_without_a_window_there_is_no_section() -> None:
    for render in (text.render, markdown.render, html.render):
        assert "torch's profiler" not in render(bottleneck()).lower().replace("’", "'")


def test_what_is_no_window_is_passed_over(report: Report) -> None:
    for stored in (7, [7], [{"rank": 0}], {"rank": 0}):
        assert "PROFILER" not in text.render(replace(report, facts={"deep": stored}))


def test_copies_have_a_row_and_no_share_of_the_kernels(report: Report) -> None:
    window = replace(deep_window(), copy_s=0.0011)
    copying = replace(report, facts={**report.facts, **deep_facts((window,))})
    assert "copies, beside the kernels 1.10 ms" in " ".join(text.render(copying).split())
    assert "| copies, beside the kernels | 1.10 ms |  |" in markdown.render(copying)
    assert "copies, beside the kernels" in html.render(copying)
    assert "copies, beside" not in text.render(report)
