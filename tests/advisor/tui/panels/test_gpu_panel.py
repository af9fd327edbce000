"""The GPU panel: bars, links, parts at work, and trouble on a line of its own, at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from rn50_advisor.advisor.model.report import GpuStrip
from rn50_advisor.advisor.tui.panels.gpu_panel import GpusPanel
from rn50_advisor.advisor.tui.panels.now_panel import gpu_cell


def drawn(width: int, **given: object) -> list[str]:
    gpus = (samples.gpu(0), replace(samples.gpu(1), **given))
    report = replace(samples.healthy(), gpus=gpus)
    return [line.plain for line in GpusPanel().draw(report, width)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 200])
def test_no_line_is_wider_than_the_panel(width):
    told = {"pcie_gen": 4.0, "pcie_width": 16.0, "sm_active_pct": 82.0, "tensor_active_pct": 34.0}
    lines = drawn(width, trouble="throttled 60 %", ranks="0, 1, 2, 3", **told)
    assert all(len(line) <= max(width, 52) for line in lines)


def test_trouble_is_said_below_the_bars_with_its_rank():
    lines = drawn(80, trouble="throttled 60 %", ranks="1")
    assert len(lines) == 3 and lines[2].strip() == "▲ GPU 1 (rank 1): throttled 60 %"
    assert len(drawn(80)) == 2


def test_link_and_parts_at_work_where_there_is_room():
    told = {"pcie_gen": 5.0, "pcie_width": 16.0, "sm_active_pct": 82.0, "tensor_active_pct": 34.0}
    wide = drawn(150, **told)
    assert "g5 x16" in wide[1] and "SM" in wide[1] and "34 %" in wide[1].replace("34%", "34 %")
    assert "SM" not in drawn(120, **told)[1] and "g5 x16" not in drawn(100, **told)[1]


def test_what_was_not_read_is_a_dash():
    report = replace(samples.healthy(), gpus=(GpuStrip(0, ""),))
    (line,) = GpusPanel().draw(report, 130)
    assert "–" in line.plain or "—" in line.plain


def test_a_gpu_in_trouble_is_marked_on_the_first_view():
    sound, hot = (gpu_cell(replace(samples.gpu(3), trouble=words), 42) for words in ("", "throttled 60 %"))
    assert sound.plain.startswith("GPU 3") and hot.plain.startswith("▲ 3")
    assert len(hot.plain) == len(sound.plain)
