"""Facts that the reports show as tables of their own, in words: the storage of the data, the communication between ranks."""

from __future__ import annotations

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.fact_rows import rows
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line

TITLES = {"storage": "Storage", "exchange": "Communication between the ranks"}
_LABEL_WIDTH = 19


def tables(report: Report) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, title, rows) of each table that has rows."""
    known = [(name, title, rows(report.facts, name)) for name, title in TITLES.items()]
    return [table for table in known if table[2]]


def text_lines(report: Report) -> list[Line]:
    out: list[Line] = []
    for _, title, pairs in tables(report):
        out += [[]] if out else []
        out.append(styled_lines.title(title))
        for label, text in pairs:
            out += styled_lines.wrapped(label.ljust(_LABEL_WIDTH), inert_text.one_line(text, 300), most=3)
    return out


def markdown_lines(report: Report) -> list[str]:
    out: list[str] = []
    for _, title, pairs in tables(report):
        table = inert_text.markdown_table(("what", "value"), [[*map(inert_text.markdown, row)] for row in pairs])
        out += [*([""] if out else []), f"## {title}", "", *table]
    return out
