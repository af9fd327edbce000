"""What stands in which view."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.tui.views import LegendPanel
from tui_doubles import Reports, screen_text, settle, shown


@pytest.mark.parametrize(("size", "seen"), [((100, 40), True), ((80, 24), False)])
async def test_what_the_ranks_exchange_stands_below_them_where_there_is_room(size: tuple[int, int], seen: bool):
    report = replace(samples.running(), facts={"exchange": {"network transfer": "30 ms exposed"}})
    async with shown(Reports(report), size) as (app, pilot):
        await pilot.press("3")
        await settle(app, pilot)
        text = screen_text(app)
        assert ("Critical path · exchange" in text) == ("30 ms exposed" in text) == seen


@pytest.mark.parametrize(
    ("view", "panels"),
    [
        ("overview", {"throughput", "budget", "capacities", "now", "gpus-short", "host-short", "finding-list-short"}),
        ("findings", {"finding-list", "finding-detail"}),
        ("ranks", {"rank-table", "rank-legend"}),
        ("machine", {"gpus", "deep", "host"}),
        ("checks", {"outcomes", "gaps", "overhead", "loaders", "run"}),
        ("over-time", {"time-lost", "phases", "rank-history", "gpu-history"}),
        ("trials", {"trial-answer", "trial-table", "trial-detail"}),
    ],
)
async def test_each_view_has_its_panels(view: str, panels: set[str]) -> None:
    async with shown(Reports(samples.running()), (100, 40)) as (app, _):
        assert panels <= {widget.id for widget in app.query_one(f"#{view}").query("*")}


def test_the_legend_says_what_the_ranks_exchange_where_there_is_room() -> None:
    report = replace(samples.running(), facts={"exchange": {"network transfer": "30 ms exposed"}})
    panel = LegendPanel()
    assert panel.titled(report) == "Critical path · exchange"
    assert any("30 ms exposed" in content.plain for content in panel.draw(report, 80))
    panel.terminal_lines = 24
    assert panel.titled(report) == "Critical path" and not any("30 ms" in c.plain for c in panel.draw(report, 80))
    assert panel.draw(replace(samples.young(), facts={}), 80) == []
