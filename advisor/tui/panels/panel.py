"""A part of the screen that draws one report as lines as wide as it is; a part that cannot draw says so and nothing else stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from rich.segment import Segment
from textual.content import Content, Span
from textual.dom import NoScreen
from textual.errors import NoWidget
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.styles.drawing import fit, same, unmarked
from rn50_advisor.advisor.tui.styles.phase_styles import MUTED

HELD_REPORTS = 10  # about as many seconds
Line: TypeAlias = "Content | Callable[[], Content]"  # of one line; a function is called only when the line is in sight


class Panel(Widget):
    """Subclasses implement `draw`; `show` gives them the newest report."""

    TITLE: ClassVar[str] = ""
    # Rows that come and go with each report must not move what is below: a panel that has fewer of them keeps its height for HELD_REPORTS.
    # Each change of height lays the screen out twice: 30 ms of a refresh in 200x56 in place of 20.
    HOLDS_HEIGHT: ClassVar[bool] = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=f"report {classes or ''}")
        self.report: Report | None = None
        self.terminal_lines = 50
        self._drawn: dict[int, list[Line]] = {}
        self._held = 0  # reports since the height was needed
        if self.TITLE:
            self.border_title = self.TITLE

    def draw(self, report: Report, width: int) -> Sequence[Line]:
        raise NotImplementedError

    @property
    def brief(self) -> bool:
        """True on a low terminal, where panels use fewer lines."""
        return self.terminal_lines < 28

    def titled(self, report: Report) -> str:
        return self.TITLE

    def show(self, report: Report | None) -> None:
        holds = self.HOLDS_HEIGHT and report is not self.report
        self.report = report
        title = unmarked(self.titled(report)) if report else self.TITLE
        if title and title != self.border_title:
            self.border_title = title
        self.redraw(holds=holds)

    def redraw(self, *, holds: bool = False) -> None:
        """Draws anew what changed; the layout is asked for only when the height changes, so that nothing jumps or flickers."""
        width = self.content_size.width
        before = self._drawn.get(width)
        self._drawn.clear()
        in_sight = self._rows_in_sight()
        if in_sight is None:
            return  # in a hidden view, whose layout draws it
        after = self._content(width)
        missing = len(before or ()) - len(after)
        self._held = self._held + 1 if holds and missing > 0 else 0
        if 0 < self._held <= HELD_REPORTS:
            after += [Content("")] * missing
        if before is None or len(before) != len(after):
            self.refresh(layout=True)
            return
        in_sight = range(in_sight.start, min(in_sight.stop, len(after)))  # the panel may be higher than what it shows
        changed = [row for row in in_sight if not self._is_same(before, row, width)]
        if changed or len(in_sight) < len(after):
            out = (range(in_sight.start), range(in_sight.stop, len(after)))
            self.refresh(*(Region(0, rows[0], width, len(rows)) for rows in (*out, *_runs(changed)) if rows))

    def _is_same(self, before: list[Line], row: int, width: int) -> bool:
        line = before[row]
        return isinstance(line, Content) and same(line, self._line(row, width))

    def _rows_in_sight(self) -> range | None:
        """None if no view shows the panel; else its lines that are not scrolled away."""
        try:
            place = self.screen.find_widget(self)
        except (NoWidget, NoScreen):
            return None
        top = self.content_region.y
        seen = place.visible_region
        most = self.content_size.height
        return range(min(max(seen.y - top, 0), most), min(max(seen.bottom - top, 0), most))

    def render(self) -> Content:
        """All lines, as copying a selection needs them; the screen draws line by line."""
        width = self.content_size.width
        return Content("\n").join([self._line(row, width) for row in range(len(self._content(width)))])

    def render_line(self, y: int) -> Strip:
        if self.text_selection is not None:
            return super().render_line(y)
        width, style = self.content_size.width, self.visual_style
        if y >= len(self._content(width)):
            return Strip.blank(width, style.rich_style)
        drawn = self._line(y, width)
        if drawn.cell_length > width or any(_is_clickable(span) for span in drawn.spans):
            return Visual.to_strips(self, drawn, width, 1, style)[0].apply_offsets(0, y)
        # Neither to be cut nor linked: without the general way, which takes 0.17 ms a line where this takes 0.11.
        segments, x = [], 0
        for text, own in drawn.render(style, end="", parse_style=self._get_style):
            segments.append(Segment(text, (style + own).rich_style_with_offset(x, y)))
            x += len(text)
        return Strip(segments, drawn.cell_length)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._content(width))

    def _content(self, width: int) -> list[Line]:
        if width not in self._drawn:
            self._drawn[width] = self._lines(width)
        return self._drawn[width]

    def _line(self, row: int, width: int) -> Content:
        lines = self._content(width)
        line = lines[row]
        if not isinstance(line, Content):
            try:
                line = line()
            except Exception as error:  # noqa: BLE001 - as in _lines
                line = self._cannot_draw(error, width)
            lines[row] = line
        return line

    def _lines(self, width: int) -> list[Line]:
        if width <= 0:
            return []
        if self.report is None:
            return [Content.styled("… reading", MUTED)]
        try:
            return list(self.draw(self.report, width))
        except Exception as error:  # noqa: BLE001 - the screen shows a run worth hours: one part must not take it down
            return [self._cannot_draw(error, width)]

    def _cannot_draw(self, error: Exception, width: int) -> Content:
        self.log.error(f"{type(self).__name__} cannot draw", error)
        return Content.styled(fit(f"✖ cannot be shown: {type(error).__name__}: {error}", width), "$text-error")


def _is_clickable(span: Span) -> bool:
    return not isinstance(span.style, str) and bool(span.style.meta)


def _runs(rows: Sequence[int]) -> list[range]:
    """Ascending numbers as ranges of neighbours."""
    runs: list[range] = []
    for row in rows:
        if runs and runs[-1].stop == row:
            runs[-1] = range(runs[-1].start, row + 1)
        else:
            runs.append(range(row, row + 1))
    return runs
