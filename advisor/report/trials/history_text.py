"""Past trials as text: what was predicted and what was measured, and how well each rule has foretold on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from rn50_advisor.advisor.model.trials import PastTrial, RuleRecord, rule_records
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording import trial_words
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line, Style

WIDTH = 80
TRIALS_SHOWN = 40
_KNOB_CELLS = 22
_COMPARED_FEW = 5  # fewer say little about a rule
_NONE = "no trial is kept on this machine yet: rn50-advisor try -- COMMAND makes some"
_STYLES: dict[bool | None, Style] = {True: "good", False: "warn", None: "dim"}
_FORETOLD = {True: " ✓", False: " ✗", None: "  "}


def history_lines(past: Sequence[PastTrial], *, most: int = TRIALS_SHOWN) -> list[Line]:
    """One line a trial, the newest last, 80 columns wide."""
    if not past:
        return _wrapped(_NONE)
    shown = past[-most:]
    rows = [_row(trial) for trial in shown]
    head, *body = styled_lines.table(
        ["day", "rule", "change", "predicted", "measured", "answer"], rows, left=(0, 1, 2, 5)
    )
    out = [head]
    out += [[(text, _STYLES[trial.is_foretold]) for text, _ in line] for trial, line in zip(shown, body, strict=True)]
    hidden = len(past) - len(shown)
    if hidden > 0:
        out += _wrapped(f"and {fmt.counted(hidden, 'older trial')}")
    return [*out, [], *_wrapped("✓ the measured gain lay inside the predicted range; ✗ it did not")]


def calibration_lines(past: Sequence[PastTrial]) -> list[Line]:
    """How often each rule's gain lay inside its range, and what was measured of a gain that was likely."""
    records = rule_records(past)
    if not records:
        return _wrapped(_NONE)
    head = ["rule", "tried", "faster", "no gain", "undecided", "inside its range", "measured / likely"]
    first, *body = styled_lines.table(head, [_record_row(record) for record in records], left=(0,))
    out = [first]
    out += [[(text, _record_style(record)) for text, _ in line] for record, line in zip(records, body, strict=True)]
    compared, inside = sum(r.compared for r in records), sum(r.inside for r in records)
    words = f"{inside} of {fmt.counted(compared, 'gain')} measured on this machine inside the predicted range"
    return [*out, [], *_wrapped(words if compared else "none of these trials can be compared with a prediction")]


def _row(trial: PastTrial) -> list[str]:
    return [
        trial.day,
        inert_text.one_line(trial.rule, 10),
        inert_text.one_line(trial_words.fitted(trial.knob, _KNOB_CELLS), _KNOB_CELLS),
        trial_words.predicted_range(trial.predicted) + _FORETOLD[trial.is_foretold],
        f"{fmt.ratio(trial.measured.speedup)}×" if trial.measured else fmt.DASH,
        " ".join(trial_words.OUTCOME_WORDS[trial.outcome]),
    ]


def _record_row(record: RuleRecord) -> list[str]:
    return [
        inert_text.one_line(record.rule, 10),
        *(f"{count:,}" for count in (record.tried, record.faster, record.no_gain, record.undecided)),
        f"{record.inside} of {record.compared}" if record.compared else fmt.DASH,
        fmt.ratio(record.error) if record.error is not None else fmt.DASH,
    ]


def _record_style(record: RuleRecord) -> Style:
    """Yellow where most gains of several lay outside."""
    return "warn" if record.compared >= _COMPARED_FEW and 2 * record.inside < record.compared else ""


def _wrapped(text: str) -> list[Line]:
    return styled_lines.wrapped("", text, "dim", width=WIDTH)
