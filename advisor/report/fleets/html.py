"""The fleet as one HTML file in the report's dress: no network, no script that runs."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from rn50_advisor import advisor
from rn50_advisor.advisor.model.documents.ranked_fleet import SCHEMA, Fleet
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.fleets import wording
from rn50_advisor.advisor.report.html import templates

DATA_LIMIT = 150_000  # characters of embedded JSON: the page must stay below 400 KB
MACHINES_SHOWN = 300
DETAILED = 40  # machines with all their components; the worst ones
COMPONENTS_SHOWN = 25


def render(fleet: Fleet) -> str:
    return (
        templates()
        .get_template("fleet.html.j2")
        .render(
            fleet=fleet,
            wording=wording,
            machines=fleet.machines[:MACHINES_SHOWN],
            detailed=[machine for machine in fleet.machines if machine.outlier][:DETAILED]
            or fleet.machines[: min(DETAILED, 4)],
            components_shown=COMPONENTS_SHOWN,
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert_text.script_json(embedded(fleet))),
        )
    )


def embedded(fleet: Fleet) -> dict[str, Any]:
    """The JSON, of as many of the worst machines as leave room; `omitted` counts the others."""
    document = fleet.as_json()
    machines, room = document["machines"], DATA_LIMIT
    kept = []
    for machine in machines:
        room -= len(inert_text.script_json(machine))
        if room < 0:
            break
        kept.append(machine)
    return {**document, "machines": kept, "omitted": len(machines) - len(kept)} if room < 0 else document
