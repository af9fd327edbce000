"""The triage as GitHub Markdown, for tickets: no string of the machine can break a table or a page."""

from __future__ import annotations

from collections.abc import Iterable

from rn50_advisor.advisor.model.documents.machine_triage import Triage
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.triaged import wording

_text = inert_text.markdown


def render(triage: Triage) -> str:
    parts = [[f"# {_text(wording.verdict(triage))}", "", *(f"- {_text(r, 600)}" for r in triage.verdict.reasons)]]
    rows = [
        [
            _text(wording.state(check)),
            _text(check.name),
            _text(wording.value(check)),
            _text(wording.expected(check)),
            _text(check.expected.source if wording.is_judged(check.expected) else ""),
            _text(check.hint, 600),
        ]
        for check in wording.judged(triage)
    ]
    head = ("state", "check", "value", "expected", "who says so", "what it means")
    parts.append(["## Checks", "", *_table(head, rows)])
    told = [[_text(c.name), _text(wording.value(c)), _text(c.hint)] for c in wording.facts(triage)]
    if told:
        parts.append(["## Facts", "", *_table(("fact", "value", "note"), told)])
    if triage.gaps:
        missing = [[_text(gap.name), _text(gap.reason), _text(gap.hint)] for gap in triage.gaps]
        parts.append(["## Not measured", "", *_table(("check", "why", "what would help"), missing)])
    return "\n\n".join("\n".join(part) for part in parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
