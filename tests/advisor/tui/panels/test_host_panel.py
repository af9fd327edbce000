"""The node on the screen: numbers, alarms, dashes, and a line for each of several hosts."""

from __future__ import annotations

from dataclasses import replace

import report_samples as samples
from tui_doubles import Reports, screen_text, settle, shown


async def test_every_host_has_a_line_and_a_lost_one_says_since_when() -> None:
    report = samples.on_two_hosts()
    lost = replace(report, nodes=(report.nodes[0], replace(report.nodes[1], lost_after_s=75.0)))
    async with shown(Reports(lost), (140, 60)) as (app, pilot):
        seen = ""
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            seen += screen_text(app)
    assert "Hosts · 2" in seen
    assert "CPU 3.5/8" in seen
    assert "no data since 1m 15s" in seen


async def test_machine_view_shows_numbers_alarms_and_dashes():
    report = samples.healthy()
    assert report.host
    report = replace(report, host=replace(report.host, steal_pct=7.5, shm_used_bytes=None, shm_total_bytes=None))
    async with shown(Reports(report), (140, 45)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        for part in ("8 × NVIDIA H100", "98 %", "61.2 GiB/79.6 GiB", "616/700 W", "64 °C", "1755/1980 MHz", "! 7.5 %"):
            assert part in text
        assert "99.8 of 192 allowed" in text
        assert "– of –" in text
