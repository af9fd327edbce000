"""The views in one line, the open one marked; a click opens one."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.quantities import clock, number
from rn50_advisor.advisor.tui.report_source import ReplaySource
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, line, meter, muted


class View(NamedTuple):
    id: str
    key: str
    title: str
    what: str


VIEWS = (
    View("overview", "1", "Overview", "throughput, step time breakdown, stage limits"),
    View("findings", "2", "Findings", "all findings with evidence and fixes"),
    View("ranks", "3", "Ranks", "every rank: where it is, how fast, how often late"),
    View("machine", "4", "Machine", "GPUs and host"),
    View("checks", "5", "Checks", "rules, missing measurements, the advisor's own cost"),
    View("over-time", "6", "Over time", "phases, ranks and GPUs over the run, time lost so far"),
    View("trials", "7", "Trials", "fixes tried on the job: predicted and measured"),
)

_FORMS = ("full", "close", "bare")  # of the labels, the first that fits


class TabBar(Static):
    active: reactive[str] = reactive("overview")
    counts: reactive[tuple[tuple[str, int], ...]] = reactive(())

    def show(self, report: Report | None) -> None:
        if report is None:
            return
        not_measured = sum(o.state == "not_measured" for o in report.outcomes) if report.step_time.steps else 0
        self.counts = (
            ("findings", len(report.findings)),
            ("ranks", len(report.ranks)),
            ("checks", not_measured),
            ("trials", len(report.tried.trials) if report.tried else 0),
        )

    def watch_active(self) -> None:
        self._redraw()

    def watch_counts(self) -> None:
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        shown = [
            view for view in VIEWS if view.id != "trials" or view.id == self.active or dict(self.counts).get("trials")
        ]
        forms = ([self._label(view, form) for view in shown] for form in _FORMS)
        labels = next((form for form in forms if sum(map(len, form)) <= self.size.width), None)
        parts = []
        for view, label in zip(shown, labels or [self._label(view, _FORMS[-1]) for view in shown], strict=True):
            style = "bold reverse" if view.id == self.active else "$foreground 75%"
            parts.append(Content.from_markup(f"[@click=app.show_view('{view.id}')]{label}[/]").stylize(style))
        self.update(Content("").join(parts))

    def _label(self, view: View, form: str) -> str:
        """Its mark, key and title, and the count if there is one: without it and closer where the line is short."""
        count = dict(self.counts).get(view.id)
        unit = " not measured" if view.id == "checks" and self.size.width >= 100 else ""
        number = "" if not count or form == "bare" else f" {count}{unit}" if form == "full" else f"·{count}"
        mark, room = "▸" if view.id == self.active else " ", " " if form == "full" else ""
        return f"{mark}{room}{view.key} {view.title}{number}{room}"


SLOWEST, FASTEST = 0.125, 1024.0
_LEAP_S, _LEAP_SHARE = 60.0, 0.02  # of a run of days a minute is nothing
_KEYS = "  space pause  , . ±10 s  < > leap  g G ends  - + speed"


# Where a replay stands, and its keys.
class ReplayBar(Static):
    def __init__(self, replay: ReplaySource, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.replay = replay
        self._meter = (0, 0)  # its first cell, and how many

    def on_resize(self) -> None:
        self.put()

    def put(self) -> None:
        """Draws where the replay stands now."""
        replay, width = self.replay, self.size.width
        state = "‖ paused" if replay.paused else "▶ replay"
        at = f"{clock(replay.position_s):>8} "
        end = f" {clock(replay.duration_s):<8}"
        keys = _KEYS if width >= 100 else ""
        meter_width = max(width - len(state) - 8 - len(at) - len(end) - len(keys) - 1, 4)
        self._meter = (len(state) + 8 + len(at), meter_width)
        share = replay.position_s / replay.duration_s if replay.duration_s > 0 else 0.0
        colour = "$warning" if replay.paused else "$primary"
        parts: list[Part] = [(f" {state} ", f"bold auto on {colour}"), fit(f"{number(replay.speed)}×", 6, True)]
        self.update(line(*parts, at, meter(share, meter_width, colour), end, muted(keys)))

    def on_click(self, event: events.Click) -> None:
        """A click on the time line goes there, one on the state left of it pauses."""
        begin, cells = self._meter
        if event.x < begin:
            self.pause()
        elif event.x < begin + cells:
            self.seek_to((event.x - begin) / max(cells - 1, 1))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        begin, cells = self._meter
        if begin <= event.x < begin + cells:
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Dragged along the time line, the replay follows the mouse; beyond an end it stays there."""
        if self.app.mouse_captured is self:
            begin, cells = self._meter
            self.seek_to(min(max((event.x - begin) / max(cells - 1, 1), 0.0), 1.0))

    def on_mouse_up(self) -> None:
        self.release_mouse()

    def pause(self) -> None:
        self.replay.paused = not self.replay.paused
        self.put()

    def seek(self, by_s: float) -> None:
        self.replay.seek(self.replay.position_s + by_s)
        self.put()

    def leap(self, direction: int) -> None:
        self.seek(direction * max(_LEAP_S, _LEAP_SHARE * self.replay.duration_s))

    def seek_to(self, share: float) -> None:
        self.replay.seek(share * self.replay.duration_s)
        self.put()

    def change_speed(self, direction: int) -> None:
        """Twice or half as fast."""
        factor = 2.0 if direction > 0 else 0.5
        self.replay.speed = min(max(self.replay.speed * factor, SLOWEST), FASTEST)
        self.put()
