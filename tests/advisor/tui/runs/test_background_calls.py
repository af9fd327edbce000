"""Runs are read in a thread, in portions."""

from __future__ import annotations

from pathlib import Path

import pytest

from listed_screens import Files, listing, names, runs_of_each_state
from rn50_advisor.advisor.tui.runs.list_widgets import TextScreen
from rn50_advisor.advisor.tui.runs.listed_runs import ListState
from rn50_advisor.advisor.tui.runs.runs_app import RunsApp
from tui_doubles import screen_text, until


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return runs_of_each_state(tmp_path)


async def test_the_screen_is_there_and_takes_keys_while_runs_are_read(base: Path) -> None:
    files = Files(base)
    files.release.clear()
    app = RunsApp(files.actions(), ListState(), place="runs")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "… reading" in screen_text(app)
        await pilot.press("question_mark")
        assert isinstance(app.screen, TextScreen)
        await pilot.press("escape")
        files.release.set()
        await until(pilot, lambda: len(names(app)) == 6)


async def test_a_folder_without_runs_says_how_to_record_one_and_one_that_fails_why(tmp_path: Path) -> None:
    async with listing(tmp_path) as (app, pilot, files):
        assert "no runs in runs; record one: rn50-advisor run -- COMMAND" in screen_text(app)
        await pilot.press("enter", "space", "d", "w", "c")
        files.failing = "folders"
        app.reader.reload()
        await until(pilot, lambda: "✖ the folder is gone" in screen_text(app))
