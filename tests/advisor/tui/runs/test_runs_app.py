"""The screen of the runs list, key by key and click by click, with functions that stand in for files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import report_samples as samples
from listed_screens import listing, names, runs_of_each_state
from rn50_advisor.advisor.tui.runs import runs_app
from rn50_advisor.advisor.tui.runs.list_widgets import RunTable
from rn50_advisor.advisor.tui.runs.listed_runs import ListState
from screen_overflow import overflows
from tui_doubles import screen_lines, screen_text, until

SIZES = ((80, 24), (120, 36), (200, 56))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return runs_of_each_state(tmp_path)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark", "ansi-light"])
async def test_every_state_is_told_by_glyph_and_word_in_every_theme_at_every_size(base: Path, size, theme: str) -> None:
    async with listing(base, size) as (app, pilot, _):
        app.theme = theme
        await pilot.pause()
        text = screen_text(app)
        rule = samples.bottleneck().verdict.rule
        for part in (
            "6 runs in runs",
            f"▲ {rule}",
            "✔ healthy",
            "? inconclusive",
            "✖ ",
            "– not judged",
            "✖ unreadable",
        ):
            assert part in text, part
        for part in (
            "gain",
            "samples/s",
            "ranks",
            "duration",
            "command",
            "train.py",
            "Open",
            "Mark",
            "Compare",
            "Remove",
        ):
            assert part in text, part
        assert overflows(app) == []
        assert all(len(line) <= size[0] for line in screen_lines(app))


async def test_without_colour_the_cursor_and_the_marks_are_still_seen(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with listing(base) as (app, pilot, _):
        await pilot.press("space")
        await pilot.pause()
        svg = app.export_screenshot()
        text = screen_text(app)
        assert "● " in text and "1 marked" in text and "▲ " in text and "✔ healthy" in text
        colours = {
            tuple(found)
            for found in re.findall(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})", svg.partition("terminal-clip")[2])
        }
        assert all(len(set(parts)) == 1 for parts in colours), colours
        assert app.query_one(RunTable).highlighted == 1


async def test_the_newest_run_comes_first_and_arrow_keys_show_each_below_the_list(base: Path) -> None:
    async with listing(base) as (app, pilot, _):
        assert names(app) == ["new", "dead_rank", "inconclusive", "healthy", "bottleneck", "damaged"]
        await pilot.press("end")
        await pilot.pause()
        assert "✖ UNREADABLE" in screen_text(app)
        await pilot.press("up")
        await pilot.pause()
        assert "BOTTLENECK" in screen_text(app)


async def test_enter_opens_the_run_and_a_damaged_one_says_why_not(base: Path) -> None:
    async with listing(base) as (app, pilot, _):
        await pilot.press("end", "enter")
        assert app.is_running and app.return_value is None
        await pilot.press("home", "down", "enter")
        await pilot.pause()
    assert app.return_value == base / "20250104-000000-dead_rank"
    assert app.state.selected == str(base / "20250104-000000-dead_rank")


async def test_the_list_comes_back_as_it_was_left(base: Path) -> None:
    state = ListState()
    async with listing(base, state=state) as (app, pilot, _):
        await pilot.press("space", "o", "slash", *"train", "enter", "enter")
        await pilot.pause()
    assert app.return_value is not None
    async with listing(base, state=state, notice="it could not be opened") as (app, _, _):
        text = screen_text(app)
        assert "match train" in text and "1 marked" in text and "it could not be opened" in text
        assert app.state.order == "gain" and app.state.selected == state.selected


async def test_a_click_on_a_column_orders_by_it(base: Path) -> None:
    async with listing(base) as (app, pilot, _):
        head = screen_lines(app)[1]
        await pilot.click("#list-head", offset=(head.index("samples/s") + 2, 0))
        await pilot.pause()
        assert app.state.order == "samples/s" and names(app)[0] == "dead_rank"


async def test_the_filter_keeps_what_matches_and_escape_shows_all_then_takes_marks_away(base: Path) -> None:
    async with listing(base) as (app, pilot, _):
        await pilot.press("space", "slash", *"healthy", "enter")
        await pilot.pause()
        assert names(app) == ["healthy"] and app.query_one(RunTable).has_focus
        await pilot.press("slash", *"xyz", "enter")
        await pilot.pause()
        assert "no run matches" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert len(names(app)) == 6 and app.state.marked
        await pilot.press("escape")
        assert not app.state.marked


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quitting_opens_nothing(base: Path, key: str) -> None:
    async with listing(base) as (app, pilot, _):
        await pilot.press(key)
        await pilot.pause()
    assert app.return_value is None and not app.is_running


FOLDER = Path(__file__).with_name("snapshots")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_list_looks_as_it_did(base: Path, size, monkeypatch: pytest.MonkeyPatch) -> None:
    """RN50_SNAPSHOTS=write writes the file anew."""
    monkeypatch.setattr(runs_app.time, "time", lambda: 1.7e9 + 7200)
    async with listing(base, size) as (app, pilot, _):
        await pilot.press("down", "space")
        await pilot.pause()
        lines = [line.replace(str(base), "BASE") for line in screen_lines(app) if not line.startswith(" folder")]
    file = FOLDER / f"{size[0]}x{size[1]}.txt"
    if os.environ.get("RN50_SNAPSHOTS") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == file.read_text(encoding="utf-8").splitlines()
