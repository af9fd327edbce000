"""All keys and what the marks mean, on one scrolling page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from rn50_advisor.advisor.tui.actions import ACTIONS, Needs
from rn50_advisor.advisor.tui.styles.drawing import line, muted
from rn50_advisor.advisor.tui.styles.phase_styles import ORDER, look, title
from rn50_advisor.advisor.tui.styles.severity_styles import SEVERITY, STATE


def help_lines(can: Callable[[Needs], bool]) -> list[Content]:
    lines: list[Content] = []
    for group, actions in groupby((a for a in ACTIONS if can(a.needs)), key=lambda a: a.group):
        lines += [line((group, "bold $text-primary"))]
        lines += [line((f"  {a.shown:<8}", "bold"), a.what) for a in actions]
        lines.append(Content(""))
    lines.append(
        line(("Step budget", "bold $text-primary"), muted("   slanted: waiting; dotted: outside the step's work"))
    )
    for phase in ORDER:
        seen = look(phase)
        lines.append(line("  ", (f" {seen.letter}{seen.fill * 2} ", f"auto on {seen.colour}"), f"  {title(phase)}"))
    lines += [Content(""), line(("Verdicts and severities", "bold $text-primary"))]
    lines += [line("  ", (f" {glyph} {word} ", f"bold auto on {colour}")) for glyph, word, colour in STATE.values()]
    lines += [line("  ", (f"{glyph} {word}", f"bold {colour}")) for word, (glyph, _, colour) in SEVERITY.items()]
    lines += [
        Content(""),
        line(("Everywhere", "bold $text-primary")),
        Content("  –        not measured: neither zero nor fine"),
    ]
    return lines


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "close the help"),
        Binding("ctrl+c", "app.interrupt_job", "interrupt the job", show=False),
    ]

    def __init__(self, can: Callable[[Needs], bool]) -> None:
        super().__init__()
        self._can = can

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as scroll:
            scroll.border_title = "Help"
            scroll.border_subtitle = "Esc closes"
            yield Static(Content("\n").join(help_lines(self._can)))
