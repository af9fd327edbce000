"""Shows one `Fleet` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from typing import Any

from rn50_advisor.advisor.model.documents.ranked_fleet import SCHEMA, Fleet, FleetMachine
from rn50_advisor.advisor.report import DATA_LIMIT, inert_text, rendered
from rn50_advisor.advisor.report.document import (
    Document,
    Format,
    Items,
    Opening,
    Paragraph,
    Section,
    Table,
    TableRow,
)
from rn50_advisor.advisor.report.fleets import wording

MACHINES_SHOWN = 300
DETAILED = 40  # machines with all their components; the worst ones
FEW = 4  # machines of which all components fit on a screen
COMPONENTS_SHOWN = 25
_SCORE = (
    "The score counts robust standard deviations from the median of machines of the same kind, of the worst component; negative is worse. "
    "The deviation is the share by which it is worse than the baseline."
)


def render(fleet: Fleet, format: str) -> str:
    """The whole fleet in one of the report's formats; ends with one newline."""
    return rendered(fleet, format, document)


def document(fleet: Fleet) -> Document:
    title = wording.title(fleet)
    outliers = Items([wording.outlier(machine) for machine in fleet.outliers], bullet="▼ ", tone="bad", most=200)
    machines = Table(
        wording.MACHINE_COLUMNS,
        [TableRow(wording.machine_row(machine), "bad" if machine.outlier else "") for machine in fleet.machines],
        (0, 1, 3, 4),
        most=MACHINES_SHOWN,
        more="{} more, all nearer to the others",
    )
    unread = Items(
        [f"{one.file}: {one.reason}" for one in fleet.unread],
        label="not read",
        tone="warn",
        text_most=5,
        more="{} more could not be read",
    )
    return Document(
        kind="fleet",
        title=title,
        about=title,
        blocks=(
            Opening(
                title,
                (outliers, Items(fleet.notes, label="note")),
                "bad" if fleet.outliers else "good",
                state=("▼", "Outliers") if fleet.outliers else ("✓", "Alike"),
            ),
            Section("Machines, worst first", (Paragraph(_SCORE, only=("html",)), machines), titled=("html",)),
            *(_components(machine, _formats(fleet, machine)) for machine in _detailed(fleet)),
            Section("Not read", [unread], titled=("md", "html")),
        ),
        schema=SCHEMA,
        embedded=lambda: _embedded(fleet),
    )


def _detailed(fleet: Fleet) -> list[FleetMachine]:
    if len(fleet.machines) <= FEW:
        return list(fleet.machines)
    return list(fleet.outliers[:DETAILED]) or list(fleet.machines[:FEW])


def _formats(fleet: Fleet, machine: FleetMachine) -> tuple[Format, ...]:
    """A terminal shows few machines in full, and Markdown only outliers."""
    few: tuple[Format, ...] = ("text",) if len(fleet.machines) <= FEW else ()
    return (*few, "html", "md") if machine.outlier else (*few, "html")


def _components(machine: FleetMachine, formats: tuple[Format, ...]) -> Section:
    rows = [TableRow(wording.deviation_row(one), "bad" if one.outlier else "") for one in machine.deviations]
    results = "; ".join(f"{one.kind} {one.state}: {one.file}" for one in machine.results[:10])
    missing = f"not measured here: {', '.join(machine.missing)}" if machine.missing else ""
    return Section(
        machine.name,
        (
            Table(wording.DEVIATION_COLUMNS, rows, most=COMPONENTS_SHOWN, text_cell=80),
            Items([f"{one.name} is {one.value}, {one.usual} on the others" for one in machine.differences]),
            *(Paragraph(text, only=("html",)) for text in (missing, results) if text),
        ),
        aside=machine.group,
        sentence=True,
        only=formats,
    )


def _embedded(fleet: Fleet) -> dict[str, Any]:
    """The JSON, of as many of the worst machines as fit; `omitted` counts the others."""
    document = fleet.as_json()
    machines, free = document["machines"], DATA_LIMIT
    kept = []
    for machine in machines:
        free -= len(inert_text.script_json(machine))
        if free < 0:
            break
        kept.append(machine)
    return {**document, "machines": kept, "omitted": len(machines) - len(kept)} if free < 0 else document
