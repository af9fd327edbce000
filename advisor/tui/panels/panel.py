"""A part of the screen that draws one report as lines as wide as it is; a part that cannot draw says so and nothing else stops."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.styles.drawing import fit, unmarked
from rn50_advisor.advisor.tui.styles.phase_styles import MUTED


class Panel(Widget):
    """Subclasses implement `draw`; `show` gives them the newest report."""

    TITLE: ClassVar[str] = ""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=f"report {classes or ''}")
        self.report: Report | None = None
        self.terminal_lines = 50
        self._drawn: dict[int, Content] = {}
        if self.TITLE:
            self.border_title = self.TITLE

    def draw(self, report: Report, width: int) -> list[Content]:
        raise NotImplementedError

    @property
    def brief(self) -> bool:
        """True on a low terminal, where panels use fewer lines."""
        return self.terminal_lines < 28

    def titled(self, report: Report) -> str:
        return self.TITLE

    def show(self, report: Report | None) -> None:
        self.report = report
        title = unmarked(self.titled(report)) if report else self.TITLE
        if title and title != self.border_title:
            self.border_title = title
        self.redraw()

    def redraw(self) -> None:
        """Draws anew; the layout is asked for only when the height changes, so that nothing jumps or flickers."""
        width = self.content_size.width
        before = self._drawn.get(width)
        self._drawn.clear()
        after = self._content(width)
        if before is None or before.plain.count("\n") != after.plain.count("\n"):
            self.refresh(layout=True)
        elif before.plain != after.plain or before.markup != after.markup:
            self.refresh()

    def render(self) -> Content:
        return self._content(self.content_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        content = self._content(width)
        return content.plain.count("\n") + 1 if content.plain else 0

    def _content(self, width: int) -> Content:
        if width not in self._drawn:
            self._drawn[width] = Content("\n").join(self._lines(width))
        return self._drawn[width]

    def _lines(self, width: int) -> list[Content]:
        if width <= 0:
            return []
        if self.report is None:
            return [Content.styled("… reading", MUTED)]
        try:
            return self.draw(self.report, width)
        except Exception as error:  # noqa: BLE001 - the screen shows a run worth hours: one part must not take it down
            self.log.error(f"{type(self).__name__} cannot draw", error)
            return [Content.styled(fit(f"✖ cannot be shown: {type(error).__name__}: {error}", width), "$text-error")]
