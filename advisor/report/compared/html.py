"""The comparison as one HTML file in the report's dress: no network, no script that runs."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from rn50_advisor import advisor
from rn50_advisor.advisor.model.documents.comparison import SCHEMA, Comparison
from rn50_advisor.advisor.report import inert_text
from rn50_advisor.advisor.report.compared import wording
from rn50_advisor.advisor.report.html import DATA_LIMIT, PAGE_LIMIT, templates

FACTS_SHOWN = 60  # of each pair


def render(comparison: Comparison) -> str:
    """With as many of the differing facts as fit: runs of different jobs differ in hundreds."""
    shown = FACTS_SHOWN
    page = _page(comparison, shown)
    while len(page.encode("utf-8", "replace")) > PAGE_LIMIT and shown > 1:
        shown //= 2
        page = _page(comparison, shown)
    return page


def embedded(comparison: Comparison) -> dict[str, Any]:
    """The JSON, without the differing facts where they are too many; `omitted` says so."""
    document = comparison.as_json()
    if len(inert_text.script_json(document)) <= DATA_LIMIT:
        return document
    return {**document, "pairs": [{**pair, "facts": []} for pair in document["pairs"]], "omitted": ["facts"]}


def _page(comparison: Comparison, facts_shown: int) -> str:
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            wording=wording,
            scaled=wording.scaled(comparison),
            tones={"improved": "healthy", "regressed": "failed", "same": "inconclusive", "unknown": "inconclusive"},
            facts_shown=facts_shown,
            version=advisor.__version__,
            schema=SCHEMA,
            data=Markup(inert_text.script_json(embedded(comparison))),
        )
    )
