"""What GPUs draw and do, in each format: the energy of a sample beside the speed, their own counters; nothing where nobody measured it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.tui.panels.throughput_panel import ThroughputFacts


def measured() -> Report:
    report = samples.healthy()
    return replace(report, throughput=replace(report.throughput, watts=512.0, joules_per_sample=1.5375))


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (text.summary, "1.54 J a sample, 512 W on its GPUs"),
        (text.render, "1.54 J a sample, 512 W on its GPUs"),
        (markdown.render, "1.54 J a sample, 512 W on its GPUs"),
        (html.render, "joules a sample"),
    ],
)
def test_each_format_tells_it(render, words) -> None:
    assert words in render(measured())
    assert "J a sample" not in render(samples.healthy()) and "joules a sample" not in render(samples.healthy())


def test_the_screen_tells_it_where_there_is_room() -> None:
    drawn = {width: "\n".join(map(str, ThroughputFacts().draw(measured(), width))) for width in (40, 100)}
    assert "1.54 J/sample" in drawn[100] and "J/sample" not in drawn[40] and "steady" in drawn[40]


def test_it_is_in_the_json_and_older_reports_are_read_without() -> None:
    told = measured().as_json()
    assert from_json(told).throughput == measured().throughput
    del told["throughput"]["watts"], told["throughput"]["joules_per_sample"]
    assert from_json(told).throughput.joules_per_sample is None


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_a_gpu_that_counts_its_work_tells_it_beside_a_kernel_that_is_resident(render) -> None:
    report = samples.bottleneck()
    told = " ".join(render(report).split())
    counted = replace(report.gpus[0], sm_active_pct=62.0, tensor_active_pct=41.0, pcie_gen=5.0, pcie_width=16.0)
    known = " ".join(render(replace(report, gpus=(counted,))).split())
    assert "62 %, 41 %" in known and "gen 5 x16" in known
    assert "62 %" not in told and "gen 5" not in told


def test_what_asking_the_driver_cost_is_told_where_there_is_one() -> None:
    report = samples.healthy()
    asked = replace(report, overhead=replace(report.overhead, driver_share=0.004))
    for render in (text.render, markdown.render, html.render):
        assert "asking the GPU driver" in render(asked) and "asking the GPU driver" not in render(report)
