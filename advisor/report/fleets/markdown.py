"""The fleet as GitHub Markdown, for job summaries and tickets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rn50_advisor.advisor.model.documents.ranked_fleet import Fleet
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.fleets import wording

MACHINES_SHOWN = 200
_text = inert_text.markdown


def render(fleet: Fleet) -> str:
    parts = [[f"# {_text(wording.title(fleet))}"]]
    parts.append([f"- {_text(wording.outlier(machine), 1000)}" for machine in fleet.outliers[:MACHINES_SHOWN]])
    parts.append([f"- {_text(note, 600)}" for note in fleet.notes])
    shown = fleet.machines[:MACHINES_SHOWN]
    parts.append(_table(wording.MACHINE_COLUMNS, [wording.machine_row(m) for m in shown], left=(0, 1, 3, 4)))
    if len(fleet.machines) > len(shown):
        parts.append([f"{len(fleet.machines) - len(shown)} more, all nearer to the others."])
    for machine in fleet.outliers[:MACHINES_SHOWN]:
        rows = [wording.deviation_row(one) for one in machine.deviations]
        parts.append([f"## {_text(machine.name)}", "", *_table(wording.DEVIATION_COLUMNS, rows, left=(0,))])
    parts.append([f"- not read: {_text(one.file)}: {_text(one.reason, 300)}" for one in fleet.unread])
    return "\n\n".join("\n".join(part) for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: tuple[int, ...] = ()) -> list[str]:
    rule = ["---" if place in left else "---:" for place in range(len(head))]
    body = [[_text(cell) for cell in row] for row in rows]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *body)]
