"""Shows one `Fleet` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.ranked_fleet import Fleet
from rn50_advisor.advisor.report import rendered


def render(fleet: Fleet, format: str) -> str:
    """The whole fleet in one of the report's formats; ends with one newline."""
    return rendered(__name__, fleet, format)
