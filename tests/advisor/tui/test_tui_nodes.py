"""A job on several hosts on the screen: ranks with their host, and a line for each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from rn50_advisor.advisor.model.report import GpuStrip, HostStrip, NodeStrip, Report
from tui_doubles import Reports, screen_text, settle, shown, until


def on_two_hosts() -> Report:
    report = samples.input_bound()
    ranks = tuple(replace(strip, host=f"node{place}") for place, strip in enumerate(report.ranks))
    nodes = tuple(
        NodeStrip(strip.host, (strip.rank,), HostStrip(strip.host, cores=8, busy_cores=3.5), shown=strip.rank == 1)
        for strip in ranks
    )
    return replace(report, ranks=ranks, nodes=nodes)


@pytest.mark.parametrize("size", [(80, 24), (140, 50)])
async def test_ranks_are_shown_with_their_host(size: tuple[int, int]) -> None:
    async with shown(Reports(on_two_hosts()), size) as (app, pilot):
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            text = screen_text(app)
            if "Ranks ·" in text:
                assert "node0" in text and "node1" in text
                return
    raise AssertionError("no view shows the ranks")


async def test_five_hundred_ranks_on_eight_hosts_are_usable_in_eighty_columns() -> None:
    one = on_two_hosts().ranks[0]
    ranks = tuple(
        replace(one, rank=n, host=f"gpu-node-{n // 64}", step=123_456, late_share=0.97 if n == 300 else 0.0)
        for n in range(512)
    )
    nodes = tuple(NodeStrip(f"gpu-node-{h}", tuple(range(64 * h, 64 * h + 64))) for h in range(8))
    async with shown(Reports(replace(on_two_hosts(), ranks=ranks, nodes=nodes)), (80, 24)) as (app, pilot):
        await pilot.press("3", "r")
        await settle(app, pilot)
        text = screen_text(app)
        row = next(line for line in text.split("\n") if line.split()[:1] == ["300"])
        assert "97 %" in row and "node-4" in row and "123,456" in row
        assert all(name in text for name in ("host", "now", "step time", "late"))
        await pilot.press("end")
        await until(pilot, lambda: any(line.split()[:1] == ["511"] for line in screen_text(app).split("\n")))


async def test_gpus_of_several_hosts_stand_under_their_host() -> None:
    gpus = tuple(GpuStrip(n, "NVIDIA H100", util_pct=50.0, place=f"node{n // 4}, {n % 4}") for n in range(8))
    async with shown(Reports(replace(on_two_hosts(), gpus=gpus)), (80, 30)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        lines = [line.strip() for line in screen_text(app).split("\n")]
    first, second = lines.index("node0"), lines.index("node1")
    assert second - first == 5 and lines[first + 1].startswith("0 ") and lines[second + 1].startswith("4 ")


async def test_every_host_has_a_line_and_a_lost_one_says_since_when() -> None:
    report = on_two_hosts()
    lost = replace(report, nodes=(report.nodes[0], replace(report.nodes[1], lost_after_s=75.0)))
    async with shown(Reports(lost), (140, 60)) as (app, pilot):
        seen = ""
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            seen += screen_text(app)
    assert "Hosts · 2" in seen
    assert "CPU 3.5/8" in seen
    assert "not heard of since 1m 15s" in seen


async def test_a_job_on_one_host_has_no_column_for_it() -> None:
    async with shown(Reports(samples.input_bound()), (140, 50)) as (app, pilot):
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            text = screen_text(app)
            if "Ranks ·" in text:
                assert "host " not in text.split("Ranks ·")[1].split("\n")[1]
                return
    raise AssertionError("no view shows the ranks")
