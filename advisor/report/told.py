"""Facts that the reports show as tables of their own, in words: what the data lies on, what the ranks exchange."""

from __future__ import annotations

from advisor.core.report import Report
from advisor.core.told import rows
from advisor.report import inert, lines
from advisor.report.lines import Line

TITLES = {"storage": "What the data lies on", "exchange": "What the ranks exchange"}
_LABEL_WIDTH = 19


def tables(report: Report) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, title, rows) of those that say something."""
    known = [(name, title, rows(report.facts, name)) for name, title in TITLES.items()]
    return [table for table in known if table[2]]


def text_lines(report: Report) -> list[Line]:
    out: list[Line] = []
    for _, title, told in tables(report):
        out += [[]] if out else []
        out.append(lines.title(title))
        for label, text in told:
            out += lines.wrapped(label.ljust(_LABEL_WIDTH), inert.one_line(text, 300), most=3)
    return out


def markdown_lines(report: Report) -> list[str]:
    out: list[str] = []
    for _, title, told in tables(report):
        table = [f"| {inert.markdown(label)} | {inert.markdown(text)} |" for label, text in told]
        out += [*([""] if out else []), f"## {title}", "", "| what | value |", "| --- | --- |", *table]
    return out
