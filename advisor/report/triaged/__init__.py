"""Shows one `Triage` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.machine_triage import Triage
from rn50_advisor.advisor.report import rendered


def render(triage: Triage, format: str) -> str:
    """The whole triage in one of the report's formats; ends with one newline."""
    return rendered(__name__, triage, format)
