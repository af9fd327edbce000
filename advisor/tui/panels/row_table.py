"""A table of one line a row, which draws only the rows in sight and, on a refresh, only those that changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from rn50_advisor.advisor.tui.styles.drawing import same


# Not Textual's DataTable: it draws each cell by itself, 60 ms for 45 rows of nine columns where this takes a tenth.
class RowTable(ScrollView, can_focus=True):
    """A header that stays on top, and a cursor that keeps its row. Cells are laid out by who fills the table."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"row-table--head", "row-table--even", "row-table--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "row up", show=False),
        Binding("down", "move(1)", "row down", show=False),
        Binding("pageup", "move_page(-1)", "page up", show=False),
        Binding("pagedown", "move_page(1)", "page down", show=False),
        Binding("home", "move_to_end(-1)", "first row", show=False),
        Binding("end", "move_to_end(1)", "last row", show=False),
    ]

    cursor_row: reactive[int] = reactive(0)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.row_count = 0
        self._head = Content("")
        self._draw_row: Callable[[int], Content] = lambda _: Content("")
        self._drawn: dict[int, Content] = {}

    def fill(self, head: Content, row_count: int, draw_row: Callable[[int], Content]) -> None:
        """`draw_row` is called with the number of a row when that row comes into sight."""
        before, changed = self._drawn, not same(self._head, head) or row_count != self.row_count
        self._head, self.row_count, self._draw_row, self._drawn = head, row_count, draw_row, {}
        self.virtual_size = Size(0, row_count + 1)
        self.cursor_row = min(self.cursor_row, max(row_count - 1, 0))
        if changed:
            self.refresh()
            return
        for row in self._rows_in_sight():
            if row not in before or not same(before[row], self.row(row)):
                self._refresh_row(row)

    def row(self, row: int) -> Content:
        if row not in self._drawn:
            self._drawn[row] = self._draw_row(row)
        return self._drawn[row]

    def _rows_in_sight(self) -> range:
        top = self.scroll_offset.y
        return range(min(top, self.row_count), min(top + self._page, self.row_count))

    @property
    def _page(self) -> int:
        return max(self.scrollable_content_region.height - 1, 1)

    def _refresh_row(self, row: int) -> None:
        self.refresh(Region(0, row + 1 - self.scroll_offset.y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = self.scroll_offset.y + y - 1
        if y == 0:
            content, style = self._head, self.get_visual_style("row-table--head")
        elif row < self.row_count:
            kinds = {"row-table--cursor": row == self.cursor_row, "row-table--even": row % 2 == 0}
            kind = next((name for name, fits in kinds.items() if fits), None)
            content, style = self.row(row), self.get_visual_style(kind) if kind else self.visual_style
        else:
            return Strip.blank(width, self.visual_style.rich_style)
        strips = Visual.to_strips(self, content, width, 1, style, pad=True)
        return strips[0] if strips else Strip.blank(width, style.rich_style)

    def watch_cursor_row(self, before: int, after: int) -> None:
        self._refresh_row(before)
        self._refresh_row(after)
        top = self.scroll_offset.y
        if after < top:
            self.scroll_to(y=after, animate=False)
        elif after >= top + self._page:
            self.scroll_to(y=after + 1 - self._page, animate=False)

    def action_move(self, by: int) -> None:
        self.cursor_row = min(max(self.cursor_row + by, 0), max(self.row_count - 1, 0))

    def action_move_page(self, direction: int) -> None:
        self.action_move(direction * self._page)

    def action_move_to_end(self, direction: int) -> None:
        self.action_move(direction * self.row_count)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        row = self.scroll_offset.y + at.y - 1
        if at.y == 0:
            self.click_head(at.x)
        elif row < self.row_count:
            self.cursor_row = row

    def click_head(self, x: int) -> None:
        """Called for a click on the header, with its column of cells."""
