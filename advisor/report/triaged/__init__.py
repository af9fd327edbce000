"""Shows one `Triage` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from advisor.core.triage import Triage
from advisor.report import rendered


def render(triage: Triage, format: str) -> str:
    """The whole triage in one of the report's formats; ends with one newline."""
    return rendered(__name__, triage, format)
