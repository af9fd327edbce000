"""A run's screen over the list of runs."""

from __future__ import annotations

import pytest

import report_samples as samples
from rn50_advisor.advisor.tui.runs.opened_run import LEFT, OpenedRun
from tui_doubles import Replay, screen_text, settle


@pytest.mark.parametrize(("key", "answer"), [("q", "quit"), ("escape", "quit"), ("ctrl+c", LEFT)])
async def test_an_opened_run_leads_back_to_the_list_except_by_ctrl_c(key: str, answer: str) -> None:
    app = OpenedRun(Replay(samples.running()), poll_s=0.05)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert "Back" in screen_text(app) and "Quit" not in screen_text(app)
        await pilot.press(key)
        await pilot.pause()
    assert app.return_value == answer


async def test_escape_in_an_opened_run_first_takes_its_filter_away() -> None:
    app = OpenedRun(Replay(samples.running()), poll_s=0.05)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("slash", *"dat", "enter", "escape")
        await pilot.pause()
        assert app.is_running and not app.needle
