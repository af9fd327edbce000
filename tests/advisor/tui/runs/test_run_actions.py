"""What can be done with the chosen runs of the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from listed_screens import listing, names, runs_of_each_state
from rn50_advisor.advisor.tui.runs import run_actions
from rn50_advisor.advisor.tui.runs.list_widgets import RunTable, TextScreen
from tui_doubles import screen_text, until


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return runs_of_each_state(tmp_path)


async def test_two_marked_runs_are_compared_oldest_first_on_the_screen(base: Path) -> None:
    async with listing(base) as (app, pilot, files):
        await pilot.press("c")
        assert files.asked == []
        await pilot.press("space", "space", "c")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.pause()
        assert files.asked == [("compare", ["20250104-000000-dead_rank", "20250105-000000-new"])]
        assert "improved: 1.5 times" in screen_text(app) and "[not markup]" in screen_text(app)
        await pilot.press("escape")
        assert app.query_one(RunTable)


async def test_what_cannot_be_removed_is_said(base: Path) -> None:
    async with listing(base) as (app, pilot, files):
        files.failing = "removal"
        await pilot.press("d")
        await until(pilot, lambda: "it is being recorded" in screen_text(app))
        assert len(names(app)) == 6


@pytest.mark.parametrize("failing", ["", "judge"])
async def test_missing_verdicts_are_found_on_request_and_kept(base: Path, failing: str) -> None:
    async with listing(base) as (app, pilot, files):
        files.failing = failing
        await pilot.press("v")
        await until(pilot, lambda: files.asked and app.judging.progress is None)
        assert files.asked == [("judge", "20250105-000000-new")]
        await pilot.pause()
        assert ("damaged" in screen_text(app) and "– not judged" in screen_text(app)) == bool(failing)
        assert (screen_text(app).count("✔ healthy") == 2) == (not failing)


async def test_the_page_of_a_run_is_written_and_opened(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(run_actions, "open_page", lambda path: opened.append(path) or True)
    async with listing(base) as (_, pilot, _files):
        await pilot.press("w")
        await until(pilot, lambda: opened)
    assert opened == [base / "20250105-000000-new" / "report.html"]
