"""Everything the screen can do, once: keys, footer, help and command palette are all made from this table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Provider

from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS

if TYPE_CHECKING:
    from rn50_advisor.advisor.tui.app import AdvisorApp

from collections.abc import Callable
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from rn50_advisor.advisor.tui.styles.drawing import line, muted
from rn50_advisor.advisor.tui.styles.phase_styles import ORDER, phase_style, title
from rn50_advisor.advisor.tui.styles.severity_styles import SEVERITY, STATE

Needs = Literal["", "replay", "output", "job", "save"]


@dataclass(frozen=True, slots=True)
class Action:
    group: str
    keys: str  # as Textual names them, several separated by commas
    shown: str  # as people name them
    action: str
    what: str
    footer: str = ""  # its word in the footer; empty: not there
    footer_key: str = ""
    needs: Needs = ""
    palette: bool = True
    priority: bool = False


ACTIONS = (
    Action("Views", "1", "1", "show_view('overview')", VIEWS[0].what, "View", footer_key=f"1–{VIEWS[-1].key}"),
    *(Action("Views", v.key, v.key, f"show_view('{v.id}')", v.what) for v in VIEWS[1:]),
    Action("Views", "tab", "Tab", "app.focus_next", "next pane; arrow and Page keys scroll it", palette=False),
    Action("Views", "question_mark,f1", "?", "help", "this help", "Help"),
    Action("Findings", "n", "n", "next_finding", "next finding"),
    Action("Findings", "p", "p", "previous_finding", "previous finding"),
    Action(
        "Findings", "y", "y", "copy_fix", "copy the fix or the tried change: the option to type, or the diff", "Copy"
    ),
    Action("Findings", "e", "e", "edit_fix", "open the fix's line in $VISUAL or $EDITOR", "Edit"),
    Action("Findings", "c", "c", "copy_finding", "copy the whole finding as text"),
    Action("Findings", "slash", "/", "filter_rows", "filter findings and ranks; Esc shows all", "Find"),
    Action("Findings", "escape", "Esc", "clear_filter", "show all findings and ranks again"),
    Action("Ranks", "r", "r", "order_ranks", "order ranks by number, lateness, step time, time in phase"),
    Action("Ranks", "a", "a", "group_alike", "ranks and GPUs that are alike: in one row, or in a row each"),
    Action("Ranks", "t", "t", "next_heat", "over time, on a low terminal: step time or lateness of the ranks"),
    Action(
        "Report", "w", "w", "open_report", "write the report as HTML and open it in a browser", "HTML", needs="save"
    ),
    Action("Report", "s", "s", "save_report", "save a report: HTML, Markdown or JSON", needs="save"),
    Action("Output", "o", "o", "toggle_output", "output: side by side, alone, closed", "Output", needs="output"),
    Action("Output", "ctrl+f", "Ctrl-F", "search_output", "search the output; in its pane also /", needs="output"),
    Action("Output", "f", "f", "follow_output", "follow the end of the output", needs="output"),
    Action("Replay", "space", "Space", "pause_replay", "pause or continue", needs="replay"),
    Action("Replay", "comma,left", ",", "seek(-10)", "10 seconds back", needs="replay"),
    Action("Replay", "full_stop,right", ".", "seek(10)", "10 seconds on", needs="replay"),
    Action("Replay", "less_than_sign", "<", "leap(-1)", "back a minute, or a fiftieth of a long run", needs="replay"),
    Action(
        "Replay", "greater_than_sign", ">", "leap(1)", "forward a minute, or a fiftieth of a long run", needs="replay"
    ),
    Action("Replay", "g", "g", "seek_to(0)", "to the beginning", needs="replay"),
    Action("Replay", "G", "G", "seek_to(1)", "to the end", needs="replay"),
    Action("Replay", "minus", "-", "change_speed(-1)", "half the speed", needs="replay"),
    Action("Replay", "plus,equals_sign", "+", "change_speed(1)", "twice the speed", needs="replay"),
    Action(
        "Job",
        "ctrl+c",
        "Ctrl-C",
        "interrupt_job",
        "interrupt the job, as on a terminal; without a job: quit",
        priority=True,
    ),
    Action("Job", "q,ctrl+q", "q", "quit", "quit; asks first while a job runs", "Quit"),
)


def bindings() -> Iterator[Binding]:
    for a in ACTIONS:
        yield Binding(
            a.keys,
            a.action,
            a.footer or a.what,
            show=bool(a.footer),
            key_display=a.footer_key or a.shown,
            priority=a.priority,
        )


NEEDS = {a.action.partition("(")[0]: a.needs for a in ACTIONS if a.needs}


class AdvisorCommands(Provider):
    """The same actions in the command palette."""

    @property
    def _advisor(self) -> AdvisorApp:
        from rn50_advisor.advisor.tui.app import AdvisorApp  # noqa: PLC0415 - the app imports this module

        assert isinstance(self.app, AdvisorApp)
        return self.app

    def _rows(self) -> Iterator[tuple[str, str, partial[Coroutine[Any, Any, bool]]]]:
        for action in ACTIONS:
            if action.palette and self._advisor.can(action.needs):
                text = f"{action.group}: {action.what}"
                yield text, f"key {action.shown}", partial(self.app.run_action, action.action)

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        for text, key, run in self._rows():
            yield DiscoveryHit(text, run, help=key)

    async def search(self, query: str) -> AsyncIterator[Hit]:
        matcher = self.matcher(query)
        for text, key, run in self._rows():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), run, help=key)


# All keys and what the marks mean, on one scrolling page.
def help_lines(can: Callable[[Needs], bool]) -> list[Content]:
    lines: list[Content] = []
    for group, actions in groupby((a for a in ACTIONS if can(a.needs)), key=lambda a: a.group):
        lines += [line((group, "bold $text-primary"))]
        lines += [line((f"  {a.shown:<8}", "bold"), a.what) for a in actions]
        lines.append(Content(""))
    lines.append(
        line(
            ("Step time breakdown", "bold $text-primary"),
            muted("   slanted: waiting; dotted: outside the step's own work"),
        )
    )
    for phase in ORDER:
        seen = phase_style(phase)
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
