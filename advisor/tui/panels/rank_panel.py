"""All ranks as a table that scrolls: where each is now and for how long, its last steps, how often it is the late one, its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from textual import events
from textual.content import Content

from rn50_advisor.advisor.model.alike import ALIKE, alike_ranks, one_rank
from rn50_advisor.advisor.model.report import RankStrip, Report
from rn50_advisor.advisor.model.wording.quantities import DASH, duration, number, share, shorten_path
from rn50_advisor.advisor.model.wording.rank_words import place
from rn50_advisor.advisor.tui.panels.row_table import RowTable
from rn50_advisor.advisor.tui.row_filter import LATE_SHARE, keeps_rank
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, line, stacked, unmarked
from rn50_advisor.advisor.tui.styles.phase_styles import ENDED

ORDERS: tuple[tuple[str, Callable[[RankStrip], tuple[float, int]]], ...] = (
    ("ordered by rank", lambda r: (0.0, r.rank)),
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
_PINNED = ", ▲ verdict's on top"
_RIGHT = ("rank", "for", "step", "step time", "late", "pid")
_BAR_AT_LEAST = 14


def named_ranks(report: Report) -> frozenset[int]:
    """The ranks that the verdict is about, if they are the fewer ones."""
    finding = next((f for f in report.findings if f.rule == report.verdict.rule), None)
    named = frozenset(finding.scope.ranks) if finding is not None else frozenset()
    return named if 2 * len(named) < len(report.ranks) else frozenset()


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all rows have in common. `scale_s`: the step that fills the bar of a budget."""

    columns: Columns
    bar: int
    scale_s: float
    budgets: Mapping[int, Mapping[str, float]]
    pinned: frozenset[int]
    marks_late: bool


class RankTable(RowTable):
    """Cursor and scroll position stay where the user left them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="report")
        self.border_title = "Ranks"
        self.report: Report | None = None
        self.order: int | None = None  # None: not chosen by the user
        self.needle = ""
        self.grouped = True

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
        if shared:
            alike = {strip.rank for strip in shared}
            strips = [*(strip for strip in strips if strip.rank not in alike), one_rank(shared)]
        shape = self._shape(report, shared, pinned, len(strips))
        head = line(*(f" {fit(name, width, name in _RIGHT)} " for name, width in _cells(shape)))
        self.fill(head, len(strips), lambda row: _row(strips[row], shape, len(shared)))
        of = f"{len(shared)} alike in one row (a: all) · " if shared else ""
        self.border_title = self._titled(found, len(report.ranks), f"{of}{name}{_PINNED if pinned else ''}")

    def group(self, grouped: bool) -> None:
        self.grouped = grouped
        self.show(self.report)

    def _sharing(self, report: Report, strips: list[RankStrip], pinned: frozenset[int]) -> list[RankStrip]:
        """Of many ranks, those that share a row, unless the user looks for some of them."""
        if not self.grouped or self.needle or len(strips) < _MANY_RANKS:
            return []
        return alike_ranks(strips, {*pinned, *(report.history.ranks_apart if report.history else ())})

    def _shape(self, report: Report, shared: list[RankStrip], pinned: frozenset[int], rows: int) -> _Shape:
        budgets = dict(report.budget.per_rank)
        scale_s = max((sum(phases.values()) for phases in budgets.values()), default=0.0)
        if shared:
            budgets[ALIKE] = _mean_budget([budgets[strip.rank] for strip in shared if strip.rank in budgets])
        columns = self._names()
        bar = max(self.size.width - sum(width + _PADDING for _, width in columns) - 6, 0)
        return _Shape(columns, bar if bar >= _BAR_AT_LEAST else 0, scale_s, budgets, pinned, rows > 2)

    def filter(self, needle: str) -> None:
        self.needle = needle
        self.show(self.report)

    def _titled(self, shown: int, seen: int, order: str) -> str:
        if not seen:
            return "Ranks · none seen yet"
        return f"Ranks · {unmarked(f'{shown} of {seen} match {self.needle}') if self.needle else seen} · {order}"

    def click_head(self, x: int) -> None:
        """Orders by the column, where there is such an order."""
        for name, width in self._names():
            x -= width + _PADDING
            if x < 0:
                if name in _ORDER_OF:
                    self.order = _ORDER_OF[name]
                    self.show(self.report)
                return

    def _names(self) -> Columns:
        hosts = self.report is not None and bool(self.report.nodes)
        hidden = {name for name, shown in (("pid", self.size.width >= 120), ("host", hosts)) if not shown}
        names = tuple((name, width) for name, width in _COLUMNS if name not in hidden)
        if sum(width + _PADDING for _, width in names) < self.size.width:
            return names
        return tuple((name, _NARROW.get(name, width)) for name, width in names)


def _cells(shape: _Shape) -> Columns:
    return (*shape.columns, ("step time breakdown", shape.bar)) if shape.bar else shape.columns


def _row(strip: RankStrip, shape: _Shape, shared: int) -> Content:
    """`shared`: how many ranks the row stands for if they are alike."""
    alike = strip.rank == ALIKE
    late = shape.marks_late and strip.late_share is not None and strip.late_share >= LATE_SHARE
    texts = {
        "rank": f"{shared}×" if alike else str(strip.rank),
        "host": strip.host,
        "now": place(strip.phase),
        "for": duration(strip.phase_for_s),
        "step": number(strip.step),
        "step time": duration(strip.step_s),
        "late": share(strip.late_share),
        "pid": "" if alike else str(strip.pid),
    }
    styles = {"rank": "bold", "late": "bold $text-warning" if late else ""}
    parts: list[Part] = []
    for name, width in shape.columns:
        if name == "":
            parts += [" ", _mark(strip, shape.pinned), " " * width]
            continue
        # hosts of a cluster differ at their end
        text = shorten_path(texts[name], width) if name == "host" else texts[name]
        parts += [" ", (fit(text, width, name in _RIGHT), styles.get(name, "")), " "]
    if shape.bar:
        phases = shape.budgets.get(strip.rank)
        parts += [" ", stacked(phases, shape.bar, shape.scale_s) if phases else DASH]
    return line(*parts)


def _mark(strip: RankStrip, pinned: frozenset[int]) -> Part:
    if strip.alive:
        return ("▲", "bold $text-warning") if strip.rank in pinned else "▶"
    return "✔" if strip.phase == ENDED else ("✖", "bold $text-error")


def _mean_budget(budgets: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for budget in budgets for name in budget)
    return {name: fmean(budget.get(name, 0.0) for budget in budgets) for name in names}
