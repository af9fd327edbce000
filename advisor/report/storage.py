"""What the data lies on and what that did, in the text and Markdown reports."""

from __future__ import annotations

from advisor.core.report import Report
from advisor.core.storage import storage_rows
from advisor.report import inert, lines
from advisor.report.lines import Line

_LABEL_WIDTH = 16


def text_lines(report: Report) -> list[Line]:
    rows = storage_rows(report.facts)
    out: list[Line] = [[("WHAT THE DATA LIES ON", "title")]] if rows else []
    for label, text in rows:
        out += lines.wrapped(label.ljust(_LABEL_WIDTH), inert.one_line(text, 300), most=3)
    return out


def markdown_lines(report: Report) -> list[str]:
    rows = storage_rows(report.facts)
    table = [f"| {inert.markdown(label)} | {inert.markdown(text)} |" for label, text in rows]
    return ["## What the data lies on", "", "| what | value |", "| --- | --- |", *table] if rows else []
