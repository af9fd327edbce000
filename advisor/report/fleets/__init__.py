"""Shows one `Fleet` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from importlib import import_module

from advisor.core.errors import UsageError
from advisor.core.fleet import Fleet
from advisor.report import FORMATS

_MODULES = {"text": "text", "json": "json", "md": "markdown", "html": "html"}


def render(fleet: Fleet, format: str) -> str:
    """The whole fleet in one of the report's formats; ends with one newline."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", f"formats: {', '.join(FORMATS)}")
    text: str = import_module(f"{__name__}.{_MODULES[format]}").render(fleet)
    return text.rstrip("\n") + "\n"
