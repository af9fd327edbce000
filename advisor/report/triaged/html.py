"""The triage as one HTML file in the report's dress: no network, no script that runs."""

from __future__ import annotations

from markupsafe import Markup

import advisor
from advisor.core.triage import HOSTNAME, MADE_AT, SCHEMA, Triage
from advisor.report import inert
from advisor.report.html import templates
from advisor.report.triaged import wording


def render(triage: Triage) -> str:
    host, made = (wording.value(check) if (check := triage.get(name)) else "" for name in (HOSTNAME, MADE_AT))
    return (
        templates()
        .get_template("triage.html.j2")
        .render(
            triage=triage,
            wording=wording,
            judged=wording.judged(triage),
            facts=wording.facts(triage),
            machine=" · ".join(part for part in (host, made) if part),
            tone={"keep": "healthy", "fix": "bottleneck", "hand-back": "failed"}[triage.verdict.state],
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert.script_json(triage.as_json())),
        )
    )
