"""The verdict at a glance: state, rule and title; why, fix and gain; and what the job is doing."""

from __future__ import annotations

import shlex
import time

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from rn50_advisor.advisor.model.report import Job, Report
from rn50_advisor.advisor.model.wording import rank_words
from rn50_advisor.advisor.model.wording.check_words import coverage, is_preliminary
from rn50_advisor.advisor.model.wording.quantities import DASH, clock, counted
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.panels.verdict_lines import fix_line, gain_line, why_line
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, harmless, line, muted
from rn50_advisor.advisor.tui.styles.severity_styles import state_style


def job_words(job: Job, stopping: str = "", *, ended: bool = False, end_unknown: bool = False) -> list[Part]:
    """`▶ running 12:07`, `■ ended, exit code 1, after 1:33`. `ended` and `end_unknown`: known without the recording."""
    after = clock(job.duration_s)
    asked: Part = (f" · {stopping}", "$text-warning") if stopping else ""
    if job.running and end_unknown:
        words: list[Part] = [("▶ runs on, unrecorded", "$text-warning"), f" after {after}", asked]
        return [("■ ended, exit code unknown", "bold"), f", recorded for {after}"] if ended else words
    if job.running:
        words = [("▶ running", "$text-success"), f" {after}", asked]
        return [("■ ended", "bold"), f" after {after} · reading the rest"] if ended else words
    if job.exit_signal:
        return [(f"✖ ended by {job.exit_signal}", "bold $text-error"), f" after {after}"]
    if job.exit_code is None:
        return [("■ ended", "bold"), f", exit code {DASH}, after {after}"]
    good = job.exit_code == 0
    code = f"{'✔' if good else '✖'} ended, exit code {job.exit_code}"
    return [(code, f"bold {'$text-success' if good else '$text-error'}"), f", after {after}"]


_GAIN_CELLS = 46  # of a low screen's last line: a predicted gain with its range; the job's state has the rest


class Banner(Panel):
    """Stays on top of every view. A click on the fix's place opens an editor, one on its option copies it."""

    def __init__(self, *, id: str | None = None, fallback_name: str = "") -> None:
        super().__init__(id=id)
        self.fallback_name = fallback_name
        self.stopping = ""  # what was asked of the job, as long as it runs
        self.ended = False  # the job's end is known before the run file says so
        self.end_unknown = False  # that end is not observed, and never recorded

    def draw(self, report: Report, width: int) -> list[Content]:
        """Always the same number of lines, so that the views below do not move with each sentence."""
        first = [self._headline(report, width), why_line(report, width), fix_line(report, width)]
        if not self.brief:
            return [*first, gain_line(report, width), self._job(report, width)]
        room = max(width - _GAIN_CELLS, 0)
        whole, short = self._state(report), self._state(report, ranks=False)
        state = whole if whole.cell_length <= room else _cut(short, room)
        gain = gain_line(report, width - state.cell_length - 1)
        return [*first, line(gain, " " * (width - gain.cell_length - state.cell_length), state)]

    def _headline(self, report: Report, width: int) -> Content:
        glyph, word, colour = state_style(report)
        chip = f" {glyph} {word} "
        rule = f" {report.verdict.rule}" if report.verdict.rule else ""
        checked = f" {coverage(report)} " if report.verdict.state == "healthy" else ""
        title_width = width - cell_len(chip) - cell_len(rule) - len(checked) - 1
        words = f"{counted(report.step_time.steps, 'step')}: " if is_preliminary(report) else ""
        title = fit(words + (report.verdict.title or DASH), title_width)
        return line((chip, f"bold auto on {colour}"), (rule, "bold"), " ", (title, "bold"), muted(checked))

    def _state(self, report: Report, *, ranks: bool = True) -> Content:
        job = report.job
        words = job_words(job, self.stopping, ended=self.ended, end_unknown=self.end_unknown)
        return line(" ", *words, f" · {rank_words.ranks(report)}" if ranks and job.ranks else "")

    def _job(self, report: Report, width: int) -> Content:
        job = report.job
        state = self._state(report)
        name = job.name or self.fallback_name
        name = f" · {fit(name, min(cell_len(name), 32))}" if name else ""
        argv = shlex.join(job.argv)
        left = _cut(line(state, name), width)
        argv_width = width - left.cell_length - 3
        return line(left, muted(f" · {fit(argv, argv_width).rstrip()}") if argv and argv_width > 12 else "")


def _cut(content: Content, width: int) -> Content:
    return content if content.cell_length <= width else content.truncate(width, ellipsis=True)


_SILENT_S = 10.0  # a running job is recorded every second


# One line on why the screen does not show the current state: a report could not be made, or nothing new has come for long.
class Trouble(Static):
    """Hidden while there is none. A text stays until the next report comes in."""

    def __init__(self, *, id: str | None = None, replayed: bool = False) -> None:
        super().__init__(id=id, markup=False)
        self._replayed = replayed
        self._report: Report | None = None
        self._heard_s = time.monotonic()
        self._text = ""
        self._shown = ""

    def put(self, report: Report | None, trouble: str, notice: str = "") -> None:
        """`notice`: on the state of the job itself; it is shown before all other texts."""
        if report is not None:
            self._report, self._heard_s = report, time.monotonic()
        if report is not None or trouble:
            self._text = trouble
        text = notice or self._text or self._silence()
        if text != self._shown:  # an update lays the whole screen out anew
            self._shown = text
            self.display = bool(text)
            self.update(f" ✖ {harmless(text)}")

    def _silence(self) -> str:
        silent_s = time.monotonic() - self._heard_s
        if self._replayed or self._report is None or not self._report.job.running or silent_s < _SILENT_S:
            return ""
        return f"no new data for {clock(silent_s)}: the screen is stale"
