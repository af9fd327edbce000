"""All ranks as a table that scrolls: where each is now and for how long, its last steps, how often it is the late one, its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import ClassVar, TypeAlias

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.color import Color, ColorParseError
from textual.widgets import DataTable

from rn50_advisor.advisor.model.alike import ALIKE, alike_ranks, one_rank
from rn50_advisor.advisor.model.report import RankStrip, Report
from rn50_advisor.advisor.model.wording.quantities import DASH, duration, number, share, shorten_path
from rn50_advisor.advisor.tui.row_filter import LATE_SHARE, keeps_rank
from rn50_advisor.advisor.tui.styles.drawing import fit, stacked, unmarked
from rn50_advisor.advisor.tui.styles.phase_styles import ENDED, place

ORDERS: tuple[tuple[str, Callable[[RankStrip], tuple[float, int]]], ...] = (
    ("rank", lambda r: (0.0, r.rank)),
    ("late first", lambda r: (-(r.late_share or 0.0), r.rank)),
    ("slowest first", lambda r: (-(r.step_s or 0.0), r.rank)),
    ("longest in its phase first", lambda r: (-r.phase_for_s, r.rank)),
)
Columns: TypeAlias = tuple[tuple[str, int], ...]  # names and widths
_MANY_RANKS = 16  # from here on the table begins with those that come late
_COLUMNS: Columns = (
    ("rank", 5),
    ("", 2),
    ("host", 16),
    ("now", 22),
    ("for", 8),
    ("step", 9),
    ("step time", 9),
    ("late", 6),
    ("pid", 8),
)
_NARROW = {
    "host": 9,
    "now": 14,
    "for": 7,
    "step": 8,
}  # with hosts in eighty columns: how late a rank is must stay in sight
_PADDING = 2  # of each column
_ORDER_OF = {"rank": 0, "late": 1, "step time": 2, "for": 3}  # indices of ORDERS by column
_PINNED = ", ▲ of the verdict on top"
_RIGHT = ("rank", "for", "step", "step time", "late", "pid")
_BAR_AT_LEAST = 14


def named_ranks(report: Report) -> frozenset[int]:
    """The ranks that the verdict is about, if they are the fewer ones."""
    finding = next((f for f in report.findings if f.rule == report.verdict.rule), None)
    named = frozenset(finding.scope.ranks) if finding is not None else frozenset()
    return named if 2 * len(named) < len(report.ranks) else frozenset()


class RankTable(DataTable[Text]):
    """Cells are updated one by one, so the cursor and the scroll position stay where the user left them."""

    BINDINGS: ClassVar[list[BindingType]] = [  # of a table of rows, not of its columns
        Binding("home", "scroll_top", "first rank", show=False),
        Binding("end", "scroll_bottom", "last rank", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True, classes="report")
        self.border_title = "Ranks"
        self.report: Report | None = None
        self.order: int | None = None  # None: not chosen by the user
        self.needle = ""
        self.grouped = True
        self._shown: dict[tuple[int, str], object] = {}
        self._shape: tuple[int, Columns, tuple[int, ...]] = (0, (), ())

    def on_resize(self, event: events.Resize) -> None:
        self.show(self.report)

    def next_order(self) -> str:
        self.order = (self._order(self.report.ranks if self.report else ()) + 1) % len(ORDERS)
        self.show(self.report)
        return ORDERS[self.order][0]

    def _order(self, ranks: Sequence[RankStrip]) -> int:
        """Index of the order in use."""
        return self.order if self.order is not None else int(len(ranks) >= _MANY_RANKS)

    def show(self, report: Report | None) -> None:
        self.report = report
        if report is None or not self.size.width:
            return
        name, key = ORDERS[self._order(report.ranks)]
        pinned = named_ranks(report)
        strips = [strip for strip in report.ranks if keeps_rank(self.needle, strip)]
        strips = sorted(strips, key=lambda strip: (strip.rank not in pinned, *key(strip)))
        found, shared = len(strips), self._sharing(report, strips, pinned)
        budgets = dict(report.budget.per_rank)
        if shared:
            alike = {strip.rank for strip in shared}
            budgets[ALIKE] = _mean_budget([budgets[rank] for rank in alike if rank in budgets])
            strips = [*(strip for strip in strips if strip.rank not in alike), one_rank(shared)]
        bar = self._bar_width()
        columns = self._names()
        layout = (bar, columns, tuple(strip.rank for strip in strips))
        if layout != self._shape:
            self._rebuild(strips, bar)
            self._shape = layout
        scale = max((sum(phases.values()) for phases in report.budget.per_rank.values()), default=0.0)
        for strip in strips:
            phases = budgets.get(strip.rank, {})
            cells = self._cells(strip, phases, columns=columns, bar=bar, scale=scale)
            if strip.rank == ALIKE:
                cells["rank"] = Text(fit(f"{len(shared)}×", 5, True), "bold")
                cells |= {"pid": Text("")} if "pid" in cells else {}
            if strip.rank in pinned and strip.alive:
                cells[""] = Text("▲", self._style("bold $text-warning"))
            for column, text in cells.items():
                self._update(strip.rank, column, text)
        self.border_title = self._titled(
            found,
            len(report.ranks),
            f"{f'{len(shared)} alike in one row (a: all) · ' if shared else ''}ordered by {name}{_PINNED if pinned else ''}",
        )

    def group(self, grouped: bool) -> None:
        self.grouped = grouped
        self.show(self.report)

    def _sharing(self, report: Report, strips: list[RankStrip], pinned: frozenset[int]) -> list[RankStrip]:
        """Of many ranks, those that share a row, unless the user looks for some of them."""
        if not self.grouped or self.needle or len(strips) < _MANY_RANKS:
            return []
        return alike_ranks(strips, {*pinned, *(report.history.ranks_apart if report.history else ())})

    def filter(self, needle: str) -> None:
        self.needle = needle
        self.show(self.report)

    def _titled(self, shown: int, seen: int, order: str) -> str:
        if not seen:
            return "Ranks · none seen yet"
        return f"Ranks · {unmarked(f'{shown} of {seen} match {self.needle}') if self.needle else seen} · {order}"

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """A click on a column orders by it, where there is such an order."""
        order = _ORDER_OF.get(str(event.column_key.value))
        if order is not None:
            self.order = order
            self.show(self.report)

    def _bar_width(self) -> int:
        used = sum(width + _PADDING for name, width in self._names()) + 2
        return max(self.size.width - used - 4, 0)

    def _names(self) -> Columns:
        hosts = self.report is not None and bool(self.report.nodes)
        hidden = {name for name, shown in (("pid", self.size.width >= 120), ("host", hosts)) if not shown}
        names = tuple((name, width) for name, width in _COLUMNS if name not in hidden)
        if sum(width + _PADDING for _, width in names) < self.size.width:
            return names
        return tuple((name, _NARROW.get(name, width)) for name, width in names)

    def _rebuild(self, strips: list[RankStrip], bar: int) -> None:
        at = self.cursor_row
        self.clear(columns=True)
        self._shown.clear()
        for name, width in self._names():
            self.add_column(fit(name, width, name in _RIGHT), width=width, key=name)
        if bar >= _BAR_AT_LEAST:
            self.add_column("step budget", width=bar, key="budget")
        for strip in strips:
            self.add_row(*[Text("")] * len(self.columns), key=str(strip.rank))
        if strips:
            self.move_cursor(row=min(at, len(strips) - 1))

    def _mark(self, strip: RankStrip) -> Text:
        if strip.alive:
            return Text("▶")
        return Text("✔") if strip.phase == ENDED else Text("✖", self._style("bold $text-error"))

    def _cells(
        self, strip: RankStrip, phases: Mapping[str, float], *, columns: Columns, bar: int, scale: float
    ) -> dict[str, Text]:
        late = strip.late_share is not None and strip.late_share >= LATE_SHARE and len(self._shape[2]) > 2
        texts = {
            "rank": str(strip.rank),
            "host": strip.host,
            "now": place(strip.phase),
            "for": duration(strip.phase_for_s),
            "step": number(strip.step),
            "step time": duration(strip.step_s),
            "late": share(strip.late_share),
            "pid": str(strip.pid),
        }
        styles: dict[str, str | Style] = {"rank": "bold", "late": self._style("bold $text-warning") if late else ""}
        cells = {"": self._mark(strip)}
        for name, width in columns:
            if name == "host":  # hosts of a cluster differ at their end
                cells[name] = Text(fit(shorten_path(texts[name], width), width))
            elif name in texts:
                cells[name] = Text(fit(texts[name], width, name in _RIGHT), styles.get(name, ""))
        if bar >= _BAR_AT_LEAST:
            cells["budget"] = self._bar(phases, bar, scale) if phases else Text(DASH)
        return cells

    def _bar(self, phases: Mapping[str, float], width: int, scale: float) -> Text:
        content = stacked(phases, width, scale)
        text = Text(content.plain)
        for span in content.spans:
            text.stylize(self._style(str(span.style)), span.start, span.end)
        return text

    def _style(self, style: str) -> Style:
        """Table cells know nothing of theme variables: they are looked up here. Without such a colour, none."""
        words = style.split()
        if "on" not in words:
            return Style(bold="bold" in words, color=_rich(self._colour(words[-1])))
        ground = self._colour(words[-1])
        front = ground.get_contrast_text(1.0) if ground and not ground.ansi else None
        return Style(bold="bold" in words, color=_rich(front), bgcolor=_rich(ground), reverse=ground is None)

    def _colour(self, variable: str) -> Color | None:
        try:
            return Color.parse(self.app.theme_variables[variable.lstrip("$")])
        except (KeyError, ColorParseError):
            return None

    def _update(self, rank: int, column: str, text: Text) -> None:
        seen = (text.plain, text.style, tuple(text.spans))
        if self._shown.get((rank, column)) != seen:
            self._shown[rank, column] = seen
            self.update_cell(str(rank), column, text)

    def repaint(self) -> None:
        """After a change of theme."""
        self._shown.clear()
        self.show(self.report)


def _mean_budget(budgets: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for budget in budgets for name in budget)
    return {name: fmean(budget.get(name, 0.0) for budget in budgets) for name in names}


def _rich(colour: Color | None) -> str | None:
    return None if colour is None or colour.ansi else colour.rgb and f"rgb({colour.r},{colour.g},{colour.b})"
