"""The comparison as one HTML file in the report's dress: no network, no script that runs."""

from __future__ import annotations

from markupsafe import Markup

import advisor
from advisor.core.comparison import SCHEMA, Comparison
from advisor.report import inert
from advisor.report.compared import wording
from advisor.report.html import templates

FACTS_SHOWN = 60


def render(comparison: Comparison) -> str:
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            wording=wording,
            scaled=wording.scaled(comparison),
            tones={"improved": "healthy", "regressed": "failed", "same": "inconclusive", "unknown": "inconclusive"},
            facts_shown=FACTS_SHOWN,
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert.script_json(comparison.as_json())),
        )
    )
