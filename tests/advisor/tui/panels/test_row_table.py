"""A table that draws only what is in sight."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.content import Content

from rn50_advisor.advisor.tui.panels.row_table import RowTable
from tui_doubles import screen_lines

HEIGHT = 10


class Table(RowTable):
    """Notes which rows were asked for, and where its header was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.clicked: list[int] = []

    def fill_with(self, words: list[str]) -> None:
        self.asked.clear()

        def draw(row: int) -> Content:
            self.asked.append(row)
            return Content(words[row])

        self.fill(Content("head"), len(words), draw)

    def click_head(self, x: int) -> None:
        self.clicked.append(x)


class OneTable(App[None]):
    CSS = "RowTable { height: 1fr; }"

    def compose(self) -> ComposeResult:
        yield Table()


def words(count: int) -> list[str]:
    return [f"row {n}" for n in range(count)]


async def test_only_rows_in_sight_are_drawn_and_the_header_stays() -> None:
    app = OneTable()
    async with app.run_test(size=(20, HEIGHT)) as pilot:
        table = app.query_one(Table)
        table.fill_with(words(500))
        await pilot.pause()
        assert set(table.asked) == set(range(HEIGHT - 1))
        table.focus()
        await pilot.press("end")
        await pilot.pause()
        lines = screen_lines(app)
        assert lines[0].startswith("head") and lines[-1].startswith("row 499")
        assert table.cursor_row == 499 and max(set(table.asked) - {499}) < 500 and len(set(table.asked)) < 4 * HEIGHT


async def test_a_refresh_shows_what_changed_and_keeps_cursor_and_position() -> None:
    app = OneTable()
    async with app.run_test(size=(20, HEIGHT)) as pilot:
        table = app.query_one(Table)
        table.fill_with(words(50))
        table.focus()
        await pilot.press(*["down"] * 20)
        await pilot.pause()
        before = table.cursor_row, table.scroll_offset.y
        table.fill_with([f"row {n} new" if n == 20 else f"row {n}" for n in range(50)])
        await pilot.pause()
        assert (table.cursor_row, table.scroll_offset.y) == before and before[0] == 20
        assert any(line.startswith("row 20 new") for line in screen_lines(app))


async def test_fewer_rows_take_the_cursor_along_and_none_leave_the_header() -> None:
    app = OneTable()
    async with app.run_test(size=(20, HEIGHT)) as pilot:
        table = app.query_one(Table)
        table.fill_with(words(50))
        table.focus()
        await pilot.press("end")
        table.fill_with(words(3))
        await pilot.pause()
        assert table.cursor_row == 2 and screen_lines(app)[3].startswith("row 2")
        table.fill_with([])
        await pilot.press("down", "pageup")
        await pilot.pause()
        assert [line for line in screen_lines(app) if line.strip()] == ["head"] and table.cursor_row == 0


async def test_a_click_moves_the_cursor_and_one_on_the_header_is_passed_on() -> None:
    app = OneTable()
    async with app.run_test(size=(20, HEIGHT)) as pilot:
        table = app.query_one(Table)
        table.fill_with(words(5))
        await pilot.pause()
        await pilot.click(Table, offset=(2, 3))
        await pilot.click(Table, offset=(4, 0))
        await pilot.click(Table, offset=(4, 8))
        assert table.cursor_row == 2 and table.clicked == [4]
