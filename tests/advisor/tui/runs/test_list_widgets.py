"""The list's table by mouse, its question before runs are removed, and its keys in help and palette."""

from __future__ import annotations

from pathlib import Path

import pytest

from listed_screens import listing, names, runs_of_each_state
from rn50_advisor.advisor.tui.runs.list_widgets import KEYS, RunTable
from tui_doubles import screen_text, until


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return runs_of_each_state(tmp_path)


async def test_a_click_chooses_another_opens_and_the_first_cells_mark(base: Path) -> None:
    async with listing(base) as (app, pilot, _):
        await pilot.click(RunTable, offset=(20, 3))
        assert app.query_one(RunTable).highlighted == 3 and app.is_running
        await pilot.click(RunTable, offset=(1, 4))
        await pilot.pause()
        assert app.state.marked == {str(base / "20250101-000000-bottleneck")} and app.is_running
        await pilot.click(RunTable, offset=(20, 4))
        await pilot.pause()
        await pilot.click(RunTable, offset=(20, 4))
        await pilot.pause()
    assert app.return_value is not None


async def test_runs_are_removed_only_after_a_yes_and_enter_by_habit_removes_nothing(base: Path) -> None:
    async with listing(base) as (app, pilot, files):
        for answer in ("enter", "escape", "n"):
            await pilot.press("d")
            await until(pilot, lambda: "Remove 1?" in screen_text(app))
            assert "these files go" in screen_text(app)
            await pilot.press(answer)
            if answer == "n":
                await pilot.press("escape")
            await pilot.pause()
            assert files.asked == []
        await pilot.press("space", "space", "d")
        await until(pilot, lambda: "Remove 2?" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: len(names(app)) == 4)
        assert files.asked == [("remove", ["20250104-000000-dead_rank", "20250105-000000-new"])]
        assert not app.state.marked and "4 runs" in screen_text(app)


async def test_help_and_palette_have_every_action(base: Path) -> None:
    async with listing(base, (120, 36)) as (app, pilot, _):
        await pilot.press("question_mark")
        await pilot.pause()
        text = screen_text(app)
        assert all(key.what[:60] in text for key in KEYS)
        await pilot.press("escape", "ctrl+p", *"compare the marked")
        await until(pilot, lambda: "Runs: compare" in screen_text(app))
