"""The present moment in a few lines: ranks, host, GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, RankStrip, Report
from rn50_advisor.advisor.tui.panels.now_panel import NowPanel, flow, gpu_cell, host_cells, rank_cell, rank_summary
from rn50_advisor.advisor.tui.styles.drawing import line

ALIVE = RankStrip(3, 100, True, "input_wait", 2.0, 5, 0.1)


def drawn(report: Report, width: int) -> list[str]:
    return [content.plain for content in NowPanel().draw(report, width)]


@pytest.mark.parametrize(
    ("strip", "said"),
    [
        (ALIVE, "▶ rank 3  waiting for input             2.00 s"),
        (replace(ALIVE, phase=""), "▶ rank 3  not known                     2.00 s"),
        (replace(ALIVE, alive=False, phase="ended"), "✔ rank 3 ended"),
        (replace(ALIVE, alive=False, phase="killed by SIGKILL"), "✖ rank 3 killed by SIGKILL"),
    ],
)
def test_a_rank_is_where_it_is_or_how_it_went(strip: RankStrip, said: str) -> None:
    assert rank_cell(strip, 48).plain.rstrip() == said


def test_too_many_ranks_are_counted_by_place_and_the_longest_is_named() -> None:
    ranks = (*(replace(ALIVE, rank=n) for n in range(5)), replace(ALIVE, rank=7, phase="forward", phase_for_s=60.0))
    gone = replace(ALIVE, rank=9, alive=False, phase="killed")
    said = [content.plain.rstrip() for content in rank_summary((*ranks, gone), 80)]
    assert said == ["▶ ranks: 5 waiting for input, 1 ended, 1 forward", "  longest: rank 7, forward for 1m 00s"]
    assert len(rank_summary((gone,), 80)) == 1


def test_a_host_alarms_where_something_runs_out() -> None:
    host = HostStrip("a", 16, 8, 2.0, 4.0, 7.5, 0.0, 9.6e9, 10e9, 9.5e9, 10e9, 12.0, 95.0, 0.001)
    cells = [content.plain.split() for content in host_cells(host, 40)]
    by_name = {cell[0]: cell[1:] for cell in cells}
    assert by_name["CPU"][:4] == ["4.0", "of", "8", "cores"]
    assert [name for name, cell in by_name.items() if cell[0] == "!"] == ["memory", "steal", "/dev/shm", "disk"]
    unknown = [content.plain for content in host_cells(HostStrip("a"), 40)]
    assert all("–" in cell and "!" not in cell for cell in unknown)


def test_a_gpu_has_its_numbers_and_dashes_for_the_unknown() -> None:
    assert gpu_cell(samples.gpu(2), 60).plain.split()[-7:] == ["97", "%", "77", "%", "mem", "614", "W", "62", "°C"][-7:]
    assert gpu_cell(GpuStrip(0, ""), 60).plain.split()[-4:] == ["–", "mem", "–", "–"]


def test_cells_flow_along_the_lines() -> None:
    cells = [line(f"{n}   ") for n in range(5)]
    assert [content.plain for content in flow(cells, 4, 8)] == ["0   1   ", "2   3   ", "4   "]
    assert len(flow(cells, 4, 2)) == 5 and flow([], 4, 8) == []


def test_before_any_rank_it_says_so_and_many_gpus_are_counted() -> None:
    assert drawn(replace(samples.young(), ranks=(), host=None), 80) == ["no rank seen yet"]
    many = replace(samples.healthy(), gpus=tuple(samples.gpu(n) for n in range(20)))
    assert drawn(many, 100)[-1] == "and 4 GPUs more: see Machine"


@pytest.mark.parametrize("width", [40, 60, 76, 100, 140, 200])
def test_no_line_is_wider_than_the_panel(width: int) -> None:
    for report in (samples.healthy(), samples.running(), samples.dead_rank()):
        assert max(len(row.rstrip()) for row in drawn(report, width)) <= width
