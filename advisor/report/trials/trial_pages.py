"""Shows one `Tried` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rn50_advisor.advisor.model.trials import SCHEMA, Outcome, Trial, Tried
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording import trial_words
from rn50_advisor.advisor.report import inert_text, rendered
from rn50_advisor.advisor.report.document import (
    Bar,
    Bars,
    Block,
    CodeLines,
    Document,
    Items,
    Opening,
    Pairs,
    Paragraph,
    Section,
    Table,
    TableRow,
    Tone,
)

WIDTH = 80
_WIDE = 104  # columns from which on the likely gain stands beside the predicted range
_KNOB_MIN = 16
_REFUSED_SHOWN = 5  # on a terminal
_CHANGES_SHOWN = 8
# A page of try stays below 100 KB: its dress and script are 35, and diffs and data are bounded.
_DIFFS_CHARS = 5_000  # each line takes three times that
_DATA_CHARS = 15_000
_TONES: dict[Outcome, Tone] = {"faster": "good", "no_gain": "", "undecided": "unclear", "refused": "unclear"}
_BARS = "Speed with the change over the speed without. The whisker is the interval that was measured."


def render(tried: Tried, format: str) -> str:
    """All trials in one of the report's formats; ends with one newline."""
    return rendered(tried, format, document)


def document(tried: Tried, *, width: int = WIDTH) -> Document:
    """`width`: columns of the terminal."""
    answer = trial_words.answer(tried)
    judged = [trial for trial in tried.trials if trial.outcome != "refused"]
    refused = [trial for trial in tried.trials if trial.outcome == "refused"]
    glyph, word = trial_words.OUTCOME_WORDS[answer]
    headline = trial_words.headline(tried)
    lead = [
        Paragraph(text, label, "lead")
        for label, text in (("speed", trial_words.speed(tried)), ("", trial_words.together(tried)))
        if text
    ]
    about = _about(tried)
    blocks: list[Block] = [
        Opening(
            headline,
            (*lead, Pairs(about[1:], only=("html",))),
            _TONES[answer],
            f"{glyph} {word}:",
            (glyph, word),
            headline[:1].upper() + headline[1:],
        ),
        Section("Trials", _results(judged, width)),
        *_changes(tried),
        Section("Not tried", [_not_tried(refused)], titled=("text", "md")),
        Section("What was kept away from your files, and what was not", [Items(tried.notes)], titled=("md", "html"), only=("md", "html")),
        *([Paragraph("", only=("text",))] if tried.notes else []),
        Items(tried.notes, label="note", only=("text",)),
        Pairs(about, only=("text", "md")),
    ]  # fmt: skip
    return Document(
        kind="try",
        title=headline,
        about=inert_text.command_line(tried.argv, 200),
        blocks=blocks,
        schema=SCHEMA,
        embedded=lambda: _embedded(tried),
        text_width=width,
    )


def _about(tried: Tried) -> list[tuple[str, str]]:
    """The job, and how long it took to try."""
    took = [("all trials took", fmt.duration(tried.took_s))] if tried.took_s else []
    return [("job", inert_text.command_line(tried.argv, 400) or fmt.DASH), *took]


def _results(judged: Sequence[Trial], width: int) -> list[Block]:
    rows = [TableRow(_row(trial), _row_tone(trial)) for trial in judged]
    return [
        Paragraph(_BARS, only=("html",)),
        Bars([_bar(trial) for trial in judged], ""),
        _on_terminal(judged, width),
        Table(trial_words.TRIAL_COLUMNS, rows, (0, 1, 4, 5), folded="As a table", only=("md", "html")),
    ]


def _row_tone(trial: Trial) -> Tone:
    """Red for what makes the job slower."""
    return "bad" if trial.measured and trial.measured.hi < 1.0 else ""


def _row(trial: Trial) -> list[str]:
    return [
        trial.rule,
        trial.knob,
        trial_words.predicted(trial.predicted),
        trial_words.measured(trial.measured),
        trial_words.outcome(trial),
        trial_words.note(trial),
    ]


def _bar(trial: Trial) -> Bar:
    found = trial.measured
    expected = f"predicted {trial_words.predicted(trial.predicted)}" if trial.predicted else ""
    measured = f"measured {trial_words.interval(found)}" if found else ""
    basis = " · ".join(part for part in (trial.knob, measured, expected, trial_words.note(trial)) if part)
    label = f"{trial.rule} {trial_words.outcome(trial)}"
    if found is None:
        return Bar(label, fmt.DASH, basis)
    return Bar(label, f"{fmt.ratio(found.speedup)}×", basis, found.speedup, found.lo, found.hi, slow=found.hi < 1.0)


def _on_terminal(judged: Sequence[Trial], width: int) -> Table:
    """One line a trial, as wide as the terminal; what has to be known stands below it."""
    expected = trial_words.predicted if width >= _WIDE else trial_words.predicted_range
    columns = [
        [trial.rule, expected(trial.predicted), trial_words.measured(trial.measured), trial_words.outcome(trial)]
        for trial in judged
    ]
    head = [trial_words.TRIAL_COLUMNS[place] for place in (0, 2, 3, 4)]
    taken = sum(max(len(row[place]) for row in (head, *columns)) + 2 for place in range(len(head)))
    room = max(_KNOB_MIN, width - 4 - taken)
    rows = [
        TableRow(
            (rule, trial_words.fitted(trial.knob, room), *rest),
            _TONES[trial.outcome],
            [("", trial_words.note(trial))] if trial_words.note(trial) else (),
        )
        for trial, (rule, *rest) in zip(judged, columns, strict=True)
    ]
    return Table(trial_words.TRIAL_COLUMNS[:5], rows, (0, 1, 4), text_cell=max(room, 44), only=("text",))


def _changes(tried: Tried) -> list[Section]:
    """What to type or to edit, the largest gain first."""
    sections = []
    room = _DIFFS_CHARS
    for trial in trial_words.winners(tried)[:_CHANGES_SHOWN]:
        blocks: list[Block] = [*_said(trial)]
        blocks.append(CodeLines(trial.change or trial.knob))
        if trial.diff and len(trial.diff) <= room:
            blocks.append(CodeLines(trial.diff, "diff"))
            room -= len(trial.diff)
        elif trial.diff:
            blocks.append(Paragraph("The diff is too long to be shown; it is in the JSON."))
        title = f"{trial.rule}  {trial.title}: {trial_words.measured(trial.measured)}"
        sections.append(Section(title, blocks, sentence=True))
    return [Section("What to change", sections)] if sections else []


def _said(trial: Trial) -> list[Paragraph]:
    """What to know before one keeps the change."""
    said = trial_words.note(trial)
    return [Paragraph(said, kind="lead" if trial.numbers == "accuracy" else "note")] if said else []


def _not_tried(refused: Sequence[Trial]) -> Table:
    rows = [TableRow((trial.rule, trial.knob, trial.reason)) for trial in refused]
    return Table(
        ("rule", "change", "why"),
        rows,
        (0, 1, 2),
        folded=f"{fmt.counted(len(refused), 'change')}, and why",
        text_most=_REFUSED_SHOWN,
        lines=[(f"{trial.rule}  ", f"{trial.knob}: {trial.reason}") for trial in refused],
    )


def _embedded(tried: Tried) -> dict[str, Any]:
    """The JSON without diffs where it is too large, then with as many trials as fit; `omitted` says so."""
    whole = tried.as_json()
    if len(inert_text.script_json(whole)) <= _DATA_CHARS:
        return whole
    trials = [{**trial, "diff": None} for trial in whole["trials"]]
    while trials and len(inert_text.script_json(trials)) > _DATA_CHARS:
        trials.pop()
    return {**whole, "trials": trials, "omitted": ["diff", *(["trials"] if len(trials) < len(whole["trials"]) else [])]}
