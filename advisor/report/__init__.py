"""Shows one `Report` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.report import Report

# Each is a module of this package, and of those below it, with `render`; jinja2 is loaded only for HTML, rich only for colour.
FORMATS = ("text", "json", "md", "html")
SUFFIXES = {".txt": "text", ".json": "json", ".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}
_MODULES = {"text": "text", "json": "json", "md": "markdown", "html": "html"}


def render(report: Report, format: str) -> str:
    """The whole report in one of `FORMATS`; the text has no trailing blank lines and ends with one newline."""
    return rendered(__name__, report, format)


def rendered(package: str, made: object, format: str) -> str:
    """By the module of this package that is for the format. Raises UsageError on a format that is none."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", f"formats: {', '.join(FORMATS)}")
    text: str = import_module(f"{package}.{_MODULES[format]}").render(made)
    return text.rstrip("\n") + "\n"


def format_of(path: str) -> str:
    """The format that a file name asks for. Raises UsageError on any other name."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"cannot tell the report's format from the name {Path(path).name!r}",
            f"end it with one of {', '.join(SUFFIXES)}",
        )
    return SUFFIXES[suffix]


def write(report: Report, path: str) -> None:
    """Writes the report in the format that the name asks for. Raises OSError."""
    text = render(report, format_of(path))
    Path(path).write_text(text, encoding="utf-8", errors="replace")
