"""Shows one `Comparison` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.comparison import Comparison
from rn50_advisor.advisor.report import rendered


def render(comparison: Comparison, format: str) -> str:
    """The whole comparison in one of the report's formats; ends with one newline."""
    return rendered(__name__, comparison, format)
