"""Shows one `Comparison` as text, eighty columns wide, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.documents.comparison import SCHEMA, Change, Comparison, Pair
from rn50_advisor.advisor.report import DATA_LIMIT, inert_text, rendered
from rn50_advisor.advisor.report.compared import setting_words, wording
from rn50_advisor.advisor.report.document import (
    Block,
    Document,
    Format,
    Items,
    Opening,
    Paragraph,
    PhaseBars,
    Section,
    Table,
    TableRow,
    Tone,
)

WIDTH = 80
_TONES: dict[Change, Tone] = {"improved": "good", "regressed": "bad", "same": "", "unknown": "unclear"}


def render(comparison: Comparison, format: str) -> str:
    """The whole comparison in one of the report's formats; ends with one newline."""
    return rendered(comparison, format, document)


def document(comparison: Comparison) -> Document:
    basis = Paragraph(comparison.method.basis, kind="small", only=("text", "md"))
    return Document(
        kind="comparison",
        title=" · ".join(run.name for run in comparison.runs),
        about=f"{len(comparison.runs)} runs",
        blocks=(
            *(_verdict(comparison, pair) for pair in comparison.pairs),
            *_gate(comparison, ("text", "md")),
            Section(
                "The runs",
                (
                    *_gate(comparison, ("html",)),
                    _runs(comparison),
                    _commands(comparison),
                    replace(basis, only=("html",)),
                ),
                titled=("html",),
            ),
            *(section for pair in comparison.pairs for section in _details(comparison, pair)),
            basis,
        ),
        schema=SCHEMA,
        embedded=lambda: _embedded(comparison),
        text_width=WIDTH,
    )


def _embedded(comparison: Comparison) -> dict[str, Any]:
    """Without the differing facts where they are too many; `omitted` says so."""
    document = comparison.as_json()
    if len(inert_text.script_json(document)) <= DATA_LIMIT:
        return document
    return {**document, "pairs": [{**pair, "facts": []} for pair in document["pairs"]], "omitted": ["facts"]}


def _verdict(comparison: Comparison, pair: Pair) -> Opening:
    names = Paragraph(wording.names(comparison, pair), kind="lead", only=("html",))
    return Opening(
        wording.headline(comparison, pair),
        (names, Paragraph(pair.why, "why", "lead"), Items(pair.notes, label="note")),
        _TONES[pair.change],
        f"{wording.change_word(pair.change)}:",
        wording.CHANGE_WORDS[pair.change],
        wording.page_heading(pair),
    )


def _gate(comparison: Comparison, formats: tuple[Format, ...]) -> list[Paragraph]:
    gate = comparison.gate
    tone: Tone = "bad" if gate is not None and (gate.failed or gate.unjudged) else "good"
    return [Paragraph(wording.gate(comparison), "limit", tone=tone, only=formats)] if gate is not None else []


def _runs(comparison: Comparison) -> Table:
    return Table(
        wording.RUN_COLUMNS,
        [TableRow(wording.run_row(run)) for run in comparison.runs],
        text_cell=WIDTH,
        text_fits=True,
    )


def _commands(comparison: Comparison) -> Table:
    """What each run is: folders are named after the time of their start."""
    rows = [TableRow((run.name, inert_text.command_line(run.argv, 400))) for run in comparison.runs]
    return Table(("run", "command"), rows, (0, 1), only=("html",))


def _details(comparison: Comparison, pair: Pair) -> list[Section]:
    """Changes between two runs; with several pairs, each under its own title."""
    settings = list(setting_words.rows(pair.facts))
    facts: list[Block] = [
        Table(
            ("group", "setting", "before", "after"),
            [TableRow(row) for row in settings],
            (0, 1, 2, 3),
            lines=[(f"{group}  ".ljust(13), f"{name}: {base} → {other}") for group, name, base, other in settings],
        )
    ]
    before, after = comparison.runs[pair.base].name, comparison.runs[pair.other].name
    steps = [(before, wording.phase_seconds(pair, "base_s")), (after, wording.phase_seconds(pair, "other_s"))]
    phases: list[Block] = [
        PhaseBars(steps),
        Table(wording.PHASE_COLUMNS, [TableRow(wording.phase_row(delta)) for delta in pair.phases], names=0),
        *([Paragraph("In brackets: a change that may be zero.")] if pair.phases else []),
    ]
    findings: list[Block] = [
        Items([wording.finding(change) for change in pair.findings], only=("text",)),
        Table(
            wording.FINDING_COLUMNS,
            [TableRow(wording.finding_row(change)) for change in pair.findings],
            (0, 1, 2),
            only=("md", "html"),
        ),
    ]
    parts = [
        Section("Step time by phase", phases),
        Section("Differences", facts),
        Section("Findings", findings),
    ]
    title = f"{comparison.runs[pair.other].name} against {comparison.runs[pair.base].name}"
    return [Section(title, parts, sentence=True)] if len(comparison.pairs) > 1 else parts
