"""The keys on the last line of the screen."""

from __future__ import annotations

import report_samples as samples
from rn50_advisor.advisor.tui.panels.key_bar import KeyBar
from tui_doubles import Reports, screen_lines, settle, shown


async def test_it_has_each_action_once_and_the_palette_on_the_right() -> None:
    async with shown(Reports(samples.running()), (80, 24)) as (app, _):
        last = screen_lines(app)[-1]
        assert last.startswith(" q Quit  1–7 View  ? Help") and last.endswith("▏^p palette")
        assert last.count("Quit") == 1


async def test_keys_that_do_not_fit_leave_the_palette_alone() -> None:
    async with shown(Reports(samples.running()), (40, 24)) as (app, _):
        last = screen_lines(app)[-1]
        assert last.endswith("▏^p palette") and len(last) <= 40


async def test_a_click_on_a_key_presses_it() -> None:
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        at = screen_lines(app)[-1].index("Help")
        await pilot.click(KeyBar, offset=(at, 0))
        await settle(app, pilot)
        assert app.screen.query("#help")


async def test_it_changes_with_the_keys_that_a_focused_part_has() -> None:
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        assert "Find" in screen_lines(app)[-1]
        await pilot.press("slash")
        await settle(app, pilot)
        before = screen_lines(app)[-1]
        await pilot.press("escape")
        await settle(app, pilot)
        assert "Find" in screen_lines(app)[-1] and "palette" in before
