"""Lines of output that scroll: colours kept, a rewritten line rewritten in place, only visible lines ever rendered."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.cache import LRUCache
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rn50_advisor.advisor.model.visible_text import coloured
from rn50_advisor.advisor.run.launch.output_lines import NewOutput

MOST_LINES = 20_000  # scroll-back; the whole output is in the run folder
_WIDEST = 2_000  # cells; a line of megabytes is cut, not laid out


class OutputLog(ScrollView, can_focus=True):
    """Follows the end until the user scrolls up, and again once back at the end."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[str] = []
        self.total = 0  # lines ever, those that fell off the top included
        self.follow = True
        self.needle = ""
        self.updates = 0  # how often the screen was touched: bursts are coalesced
        self._found: int | None = None
        self._cells: LRUCache[tuple[str, str], Strip] = LRUCache(1024)
        self._widest = 0

    def would_change(self, news: NewOutput) -> bool:
        known = self.lines[len(self.lines) - len(news.rewritten) :]
        return bool(news.lines) or known != list(news.rewritten)

    def receive(self, news: NewOutput) -> None:
        self.updates += 1
        del self.lines[len(self.lines) - len(news.rewritten) :]
        self.lines += news.rewritten
        self.lines += news.lines[-MOST_LINES:]
        self.total = news.total
        self._widest = max([self._widest, *map(_width, news.rewritten), *map(_width, news.lines[-MOST_LINES:])])
        fallen = max(len(self.lines) - MOST_LINES, 0)
        if fallen:
            del self.lines[:fallen]
            self._found = None if self._found is None or self._found < fallen else self._found - fallen
        self.virtual_size = Size(min(self._widest, _WIDEST), len(self.lines))
        if self.follow:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)
        elif fallen:
            self.scroll_to(y=self.scroll_y - fallen, animate=False, immediate=True)
        self.refresh()

    def last_line(self) -> str:
        return next((text for text in reversed(self.lines[-20:]) if text.strip()), "")

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < old_value:
            self.follow = new_value >= self.max_scroll_y
        elif new_value >= self.max_scroll_y:
            self.follow = True

    def go_to_end(self) -> None:
        self.follow = True
        self.scroll_to(y=self.max_scroll_y, animate=False, force=True, immediate=True)

    def find(self, needle: str, backwards: bool = True) -> bool:
        """Scrolls to the next line that contains it, the newest first, round the end; ignores case unless it has capitals."""
        fresh = needle != self.needle
        self.needle = needle
        self.refresh()
        if not needle:
            self._found = None
            return False
        exact = needle != needle.lower()
        hits = [i for i, text in enumerate(self.lines) if needle in (_plain(text) if exact else _plain(text).lower())]
        if not hits:
            self._found = None
            return False
        at = self._found if self._found is not None and not fresh else (len(self.lines) if backwards else -1)
        ahead = [i for i in hits if (i < at if backwards else i > at)] or hits
        self._found = ahead[-1] if backwards else ahead[0]
        self.follow = False
        self.scroll_to(y=max(self._found - self.size.height // 2, 0), animate=False, immediate=True)
        return True

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        index = scroll_y + y
        width = self.scrollable_content_region.width
        ground = self.rich_style
        if index >= len(self.lines):
            return Strip.blank(width, ground)
        style = ground + Style(reverse=True) if index == self._found else ground
        return self._strip(self.lines[index]).crop_extend(scroll_x, scroll_x + width, style).apply_style(style)

    def _strip(self, line: str) -> Strip:
        key = (line, self.needle)
        strip = self._cells.get(key)
        if strip is None:
            text = _text(line)
            if self.needle:
                text.highlight_words([self.needle], "reverse bold", case_sensitive=self.needle != self.needle.lower())
            segments = [segment for segment in text.render(self.app.console) if isinstance(segment, Segment)]
            strip = Strip(segments, text.cell_len)
            self._cells[key] = strip
        return strip


def _text(line: str) -> Text:
    text = Text.from_ansi(coloured(line[: _WIDEST * 4]), no_wrap=True, end="")
    text.expand_tabs(8)
    text.truncate(_WIDEST)
    return text


def _plain(line: str) -> str:
    return line if line.isascii() and line.isprintable() else _text(line).plain


def _width(line: str) -> int:
    """Returns the line's width in cells. Colour codes count too, which only leaves some room at the end."""
    return min(cell_len(line), _WIDEST)
