"""The filter of findings and ranks: a line to type into, and which rows its words keep."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import RankStrip
from rn50_advisor.advisor.model.wording.rank_words import place

_RANKS = re.compile(r"(\d+)(?:[-–](\d+))?")
LATE_SHARE = 0.5  # of the steps: from here on a rank is shown as late


def keeps_finding(needle: str, finding: Finding) -> bool:
    """True if each word of the filter is somewhere in the finding's rule, title, severity, scope or places."""
    scope = finding.scope
    places = [f"{fix.where.file}:{fix.where.line}" for fix in finding.fixes if fix.where]
    ranks = [f"rank {rank}" for rank in scope.ranks]
    gpus = [f"gpu {gpu}" for gpu in scope.gpus]
    options = [option for fix in finding.fixes for option in fix.typed]
    text = " ".join([finding.rule, finding.title, finding.severity, *ranks, *gpus, *scope.hosts, *places, *options])
    return all(word in text.lower() for word in needle.lower().split())


def keeps_rank(needle: str, strip: RankStrip) -> bool:
    """True if the rank has one of the numbers (`3`, `8-15`) in the filter, if there are any, and all of its other words."""
    words = needle.lower().replace(",", " ").split()
    ranges = [found for word in words if (found := _RANKS.fullmatch(word))]
    numbered = not ranges or any(int(r[1]) <= strip.rank <= int(r[2] or r[1]) for r in ranges)
    late = strip.late_share is not None and strip.late_share >= LATE_SHARE
    state = "alive" if strip.alive else "gone"
    text = f"rank {place(strip.phase)} {strip.phase} {strip.host} {state} {'late' if late else ''}".lower()
    return numbered and all(word in text for word in words if not _RANKS.fullmatch(word))


class FilterLine(Input):
    """Hidden until asked for. Each key filters; Enter keeps the filter and leaves the line, Esc clears it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "clear_filter", "show all", show=False)]

    class Filtered(Message):
        """`left`: the line was left by Enter or Esc."""

        def __init__(self, needle: str, *, left: bool = False) -> None:
            super().__init__()
            self.needle = needle
            self.left = left

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            placeholder="filter findings and ranks: dat, train.py, late, 8-15; Enter keeps, Esc shows all", id=id
        )
        self.display = False

    def allow_focus(self) -> bool:
        """Not while hidden: Textual focuses the first widget that it may, and a hidden line would swallow the screen's keys."""
        return self.display and super().allow_focus()

    def ask(self) -> None:
        self.display = True
        self.focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Filtered(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = False
        self.post_message(self.Filtered(event.value, left=True))

    def action_clear_filter(self) -> None:
        with self.prevent(Input.Changed):
            self.value = ""
        self.display = False
        self.post_message(self.Filtered("", left=True))
