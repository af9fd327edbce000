"""What `try` has measured on the job itself: the answer, a row for each change with its prediction, and the selected change in full."""

from __future__ import annotations

import shlex
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Outcome, Trial, Tried
from rn50_advisor.advisor.model.wording import trial_words
from rn50_advisor.advisor.model.wording.quantities import counted, duration, shorten
from rn50_advisor.advisor.trials.candidates import can_be_tried
from rn50_advisor.advisor.tui.panels.finding_detail import change_lines, diff_lines
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.panels.row_table import RowTable
from rn50_advisor.advisor.tui.styles.drawing import fit, labelled, line, muted, prose
from rn50_advisor.advisor.tui.styles.phase_styles import MUTED

OUTCOME_STYLES: dict[Outcome, str] = {
    "faster": "$text-success",
    "no_gain": "",
    "undecided": "$text-warning",
    "refused": MUTED,
}
_WIDE = 104  # columns from which on the likely gain stands beside the predicted range
_TITLED = 118  # and from which on the finding's title has a column
_RULE, _MEASURED, _ANSWER = 7, 19, 11
_PREDICTED = {False: 10, True: 18}  # by width
_KNOB_SHARE = 0.55  # of the room that change and title share
_HEAD = (*trial_words.TRIAL_COLUMNS[:5], "finding")
_COMMAND = "COMMAND"
_COMMAND_CHARACTERS = 400  # of a longer one only the beginning would be seen
_MASKED = "***"  # of a recorded command


def rows_of(tried: Tried | None) -> list[Trial | None]:
    """The rows of the table: the trials in order, those that were not made last of them; None for all faster ones at once."""
    if tried is None:
        return []
    made = [trial for trial in tried.trials if trial.outcome != "refused"]
    refused = [trial for trial in tried.trials if trial.outcome == "refused"]
    return [*made, *refused, *([None] if tried.together else [])]


def answer_lines(tried: Tried, width: int) -> list[Content]:
    answer = trial_words.answer(tried)
    head = f"{' '.join(trial_words.OUTCOME_WORDS[answer])}: {trial_words.headline(tried)}"
    style = f"bold {OUTCOME_STYLES[answer]}".strip()
    speed = trial_words.speed(tried)
    return [
        *(line((text, style)) for text in prose(head, width, 3)),
        *(line(muted(text)) for text in prose(speed, width, 2)),
    ]


def untried_lines(report: Report, run: Path | None, width: int) -> list[Content]:
    """Says what to type to try the fixes of this run."""
    command = shlex.join(report.job.argv)
    if not command or _MASKED in command or len(command) > _COMMAND_CHARACTERS:
        command = _COMMAND
    typed = f"rn50-advisor try {shlex.quote(str(run)) if run else 'RUN'} -- {command}"
    rules = dict.fromkeys(finding.rule for finding in report.findings if can_be_tried(finding))
    if report.job.running:
        said = "No fix of this run has been tried. Once the job has ended, this tries them:"
    elif rules:
        said = f"No fix of this run has been tried. This tries those of {', '.join(rules)}:"
    else:
        said = "No fix of this run has been tried. This tries its fixes, as far as they can be made from outside:"
    what = "It starts the job with each change, for seconds, and measures what the change brings. No file is edited."
    return [
        *map(Content, prose(said, width)),
        Content(""),
        *(line((f"  {text}", "bold $text-primary")) for text in prose(typed, width - 2, 4, "  ")),
        Content(""),
        *(line(muted(text)) for text in prose(what, width)),
    ]


def trial_lines(tried: Tried, trial: Trial | None, width: int) -> list[Content]:
    """One change in full, or all faster ones; then what holds for all trials."""
    chosen = [trial] if trial else trial_words.winners(tried)
    lines = [] if trial else [line((text, "bold")) for text in prose(trial_words.together(tried), width)]
    for each in chosen:
        lines += [*([] if trial else [Content("")]), *_of_one(each, width, alone=trial is not None)]
    return [*lines, Content(""), *labelled(_about(tried), width)]


def _of_one(trial: Trial, width: int, *, alone: bool) -> list[Content]:
    """`alone`: with what was predicted and measured, which the table may have had no room for."""
    head = f"{fit(trial.rule, _RULE).rstrip()}  "
    first, *more = prose(trial.title, width - len(head)) or [""]
    lines = [line((head, "bold"), (first, "bold")), *(line((text, "bold")) for text in more)]
    if alone:
        style = OUTCOME_STYLES[trial.outcome]
        told = [
            (trial_words.outcome(trial), style),
            (f" · predicted {trial_words.predicted(trial.predicted)}", ""),
            (f" · measured {trial_words.measured(trial.measured)}", ""),
        ]
        lines += [line(*told)] if sum(len(text) for text, _ in told) <= width else [line(part) for part in told]
    accuracy = "$text-warning" if trial.numbers == "accuracy" else MUTED
    lines += [line((text, accuracy)) for text in prose(trial_words.note(trial), width)]
    lines += [*change_lines(trial.change or trial.knob, width), *diff_lines(trial.diff or "", width)]
    return lines


def _about(tried: Tried) -> list[tuple[str, str]]:
    notes = [("note", note) for note in tried.notes]
    took = [("all trials took", duration(tried.took_s))] if tried.took_s else []
    return [*notes, ("job", shorten(shlex.join(tried.argv), _COMMAND_CHARACTERS)), *took]


class TrialAnswer(Panel):
    """The answer of all trials; without any, what to type for them. `run`: where the run lies, if the screen knows."""

    TITLE = "Trials"

    def __init__(self, run: Path | None, *, id: str) -> None:
        super().__init__(id=id)
        self.run = run

    def titled(self, report: Report) -> str:
        if report.tried is None:
            return f"{self.TITLE} · none yet"
        refused = sum(trial.outcome == "refused" for trial in report.tried.trials)
        tried = f"{counted(len(report.tried.trials) - refused, 'change')} tried"
        return f"{self.TITLE} · {tried}, {refused} not" if refused else f"{self.TITLE} · {tried}"

    def draw(self, report: Report, width: int) -> list[Content]:
        if report.tried is None:
            return untried_lines(report, self.run, width)
        return answer_lines(report.tried, width)


class TrialTable(RowTable):
    """A row a trial; the cursor chooses what stands below in full."""

    class Chosen(Message):
        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="report")
        self.border_title = "Changes"
        self.tried: Tried | None = None

    def on_resize(self, event: events.Resize) -> None:
        self._fill()

    def show(self, report: Report | None) -> None:
        self.tried = report.tried if report else None
        self.display = bool(rows_of(self.tried))
        self._fill()

    def chosen(self) -> Trial | None:
        """The trial under the cursor; None if it is on all of them at once."""
        rows = rows_of(self.tried)
        return rows[self.cursor_row] if self.cursor_row < len(rows) else None

    def watch_cursor_row(self, before: int, after: int) -> None:
        super().watch_cursor_row(before, after)
        self.post_message(self.Chosen(after))

    def _fill(self) -> None:
        rows, width = rows_of(self.tried), self.size.width
        before = self.row_count
        self.fill(self._row(None, width, _HEAD), len(rows), lambda row: self._drawn_row(rows[row], width))
        if before != self.row_count:
            self.refresh(layout=True)

    def _drawn_row(self, trial: Trial | None, width: int) -> Content:
        if trial is None:
            assert self.tried is not None
            found = trial_words.measured(self.tried.together)
            return self._row(None, width, ("", trial_words.all_at_once(self.tried), "", found, "", ""))
        expected = trial_words.predicted if width >= _WIDE else trial_words.predicted_range
        measured = trial_words.measured(trial.measured)
        return self._row(
            trial,
            width,
            (trial.rule, trial.knob, expected(trial.predicted), measured, trial_words.outcome(trial), trial.title),
        )

    def _row(self, trial: Trial | None, width: int, cells: tuple[str, ...]) -> Content:
        rule, knob, predicted, measured, answer, title = cells
        foretold = _PREDICTED[width >= _WIDE]
        room = max(width - _RULE - foretold - _MEASURED - _ANSWER - 9, 1)
        longest = max((len(trial.knob) for trial in self.tried.trials), default=0) if self.tried else 0
        named = min(int(room * _KNOB_SHARE), max(longest, len(_HEAD[1]))) if width >= _TITLED else room
        style = OUTCOME_STYLES[trial.outcome] if trial else "bold"
        slower = trial is not None and trial.measured is not None and trial.measured.hi < 1.0
        parts = [
            (f" {fit(rule, _RULE)} ", "bold"),
            (f"{fit(trial_words.fitted(knob, named), named)} ", ""),
            (f"{fit(predicted, foretold, right=True)}  ", ""),
            (f"{fit(measured, _MEASURED, right=True)}  ", "$text-error" if slower else style),
            (fit(answer, _ANSWER), style),
        ]
        if width >= _TITLED:
            parts.append((f" {fit(title, room - named - 1)}", MUTED))
        return line(*parts)


class TrialDetailPanel(Panel):
    def __init__(self) -> None:
        super().__init__()
        self.row = 0

    def draw(self, report: Report, width: int) -> list[Content]:
        rows = rows_of(report.tried)
        return trial_lines(report.tried, rows[min(self.row, len(rows) - 1)], width) if report.tried and rows else []


class TrialDetail(VerticalScroll):
    """Scrolls where the change says more than the pane can show."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="report")
        self.border_title = "What to change"

    def compose(self) -> ComposeResult:
        yield TrialDetailPanel()

    def show(self, report: Report | None) -> None:
        self.display = bool(report and rows_of(report.tried))

    def choose(self, row: int) -> None:
        panel = self.query_one(TrialDetailPanel)
        if panel.row != row:
            panel.row = row
            self.scroll_home(animate=False)
            panel.redraw()
