"""The triage as one HTML file in the report's dress: no network, no script that runs."""

from __future__ import annotations

from markupsafe import Markup

from rn50_advisor import advisor
from rn50_advisor.advisor.model.documents.machine_triage import HOSTNAME, MADE_AT, SCHEMA, Triage
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.html import templates
from rn50_advisor.advisor.report.triaged import wording


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
            data=Markup(inert_text.script_json(triage.as_json())),
        )
    )
