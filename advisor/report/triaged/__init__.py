"""Shows one `Triage` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.machine_triage import (
    HOSTNAME,
    MADE_AT,
    SCHEMA,
    Check,
    CheckState,
    Triage,
    TriageState,
)
from rn50_advisor.advisor.report import rendered
from rn50_advisor.advisor.report.document import Document, Items, Opening, Section, Table, TableRow, Tone
from rn50_advisor.advisor.report.triaged import wording

ROWS_MOST = 1000  # all of them: what is asked of a provider has to be complete
_TONES: dict[TriageState, Tone] = {"keep": "good", "fix": "warn", "hand-back": "bad"}
_STATE_TONES: dict[CheckState, Tone] = {"ok": "", "low": "warn", "bad": "bad", "unknown": "dim"}
_NAME = 38


def render(triage: Triage, format: str) -> str:
    """The whole triage in one of the report's formats; ends with one newline."""
    return rendered(triage, format, document)


def document(triage: Triage) -> Document:
    glyph, words = wording.VERDICT_WORDS[triage.verdict.state]
    host, made = (wording.value(check) if (check := triage.get(name)) else "" for name in (HOSTNAME, MADE_AT))
    return Document(
        kind="triage",
        title=words,
        about=" · ".join(part for part in (host, made) if part),
        blocks=(
            Opening(
                words,
                [Items(triage.verdict.reasons, bullet="- ")],
                _TONES[triage.verdict.state],
                glyph,
                (glyph, triage.verdict.state),
                words.capitalize(),
            ),
            Section("Checks", [_checks(triage)]),
            Section("Facts", [_facts(triage)]),
            Section("Not measured", [_gaps(triage)]),
        ),
        schema=SCHEMA,
        embedded=triage.as_json,
    )


def _checks(triage: Triage) -> Table:
    return Table(
        ("state", "check", "value", "expected", "source", "meaning"),
        [_judged(check) for check in wording.judged(triage)],
        (0, 1, 2, 3, 4, 5),
        names=1,
        most=ROWS_MOST,
        text_most=ROWS_MOST,
        cell_most=600,
        text_columns=4,
    )


def _judged(check: Check) -> TableRow:
    source = check.expected.source if wording.is_judged(check.expected) else ""
    cells = (wording.state(check), check.name, wording.value(check), wording.expected(check), source, check.hint)
    # where a number is not as expected, who says what to expect?
    asked = ("expected: ", source if check.state in ("low", "bad") else "")
    return TableRow(
        cells, _STATE_TONES[check.state], [(label, text) for label, text in (("", check.hint), asked) if text]
    )


def _facts(triage: Triage) -> Table:
    rows = [(check, wording.value(check)) for check in wording.facts(triage)]
    return Table(
        ("fact", "value", "note"),
        [TableRow((check.name, value, check.hint)) for check, value in rows],
        (0, 1, 2),
        names=0,
        most=ROWS_MOST,
        text_most=ROWS_MOST,
        lines=[(check.name.ljust(_NAME), value + f"  ({check.hint})" * bool(check.hint)) for check, value in rows],
    )


def _gaps(triage: Triage) -> Table:
    return Table(
        ("check", "why", "remedy"),
        [TableRow((gap.name, gap.reason, gap.hint)) for gap in triage.gaps],
        (0, 1, 2),
        names=0,
        most=ROWS_MOST,
        text_most=ROWS_MOST,
        lines=[(f"{gap.name}: ", gap.reason + f" ({gap.hint})" * bool(gap.hint)) for gap in triage.gaps],
    )
