"""The comparison as GitHub Markdown, for pull requests and job summaries: no string of the job can break a table or a page."""

from __future__ import annotations

from collections.abc import Iterable

from rn50_advisor.advisor.model.documents.comparison import Comparison, Pair
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.compared import wording

ROWS_SHOWN = 60
_text = inert_text.markdown


def render(comparison: Comparison) -> str:
    parts = [*(_verdict(comparison, pair) for pair in comparison.pairs), _gate(comparison), _runs(comparison)]
    for pair in comparison.pairs:
        parts += _details(comparison, pair)
    parts.append([f"<sub>{_text(comparison.method.basis, 400)}</sub>"])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _verdict(comparison: Comparison, pair: Pair) -> list[str]:
    out = [f"# {wording.change_word(pair.change)}: {_text(wording.headline(comparison, pair))}", "", _text(pair.why)]
    return [*out, *(line for note in pair.notes for line in ("", f"- {_text(note, 600)}"))]


def _gate(comparison: Comparison) -> list[str]:
    told = wording.gate(comparison)
    return [f"**Limit:** {_text(told)}"] if told else []


def _runs(comparison: Comparison) -> list[str]:
    rows = [[_text(cell) for cell in wording.run_row(run)] for run in comparison.runs]
    return _table(wording.RUN_COLUMNS, rows, numbers=True)


def _details(comparison: Comparison, pair: Pair) -> list[list[str]]:
    several = len(comparison.pairs) > 1
    title = f"{comparison.runs[pair.other].name} against {comparison.runs[pair.base].name}"
    out = [[f"## {_text(title)}"]] if several else []
    if pair.phases:
        head = ("phase of a step", "before", "after", "change", "interval")
        rows = [[_text(cell) for cell in wording.phase_row(delta)] for delta in pair.phases]
        out.append(["### Where a step's time went", "", *_table(head, rows, numbers=True)])
        out.append(["In brackets: a change that may be none."])
    if pair.facts:
        rows = [
            [change.group, _text(change.name), _text(change.base or "not given"), _text(change.other or "not given")]
            for change in pair.facts[:ROWS_SHOWN]
        ]
        out.append(["### What is different", "", *_table(("group", "what", "before", "after"), rows)])
        hidden = len(pair.facts) - ROWS_SHOWN
        out += [[f"{hidden} more are in the JSON."]] if hidden > 0 else []
    if pair.findings:
        lines = [f"- {_text(wording.finding(change))}" for change in pair.findings]
        out.append(["### Findings", "", *lines])
    return out


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], *, numbers: bool = False) -> list[str]:
    """Cells are escaped already; with `numbers` every column but the first is set to the right."""
    head = list(head)
    rule = ["---", *("---:" if numbers else "---" for _ in head[1:])]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]
