"""Facts that the reports show as tables of their own, in words: lines of the job's code, storage, the communication between ranks."""

from __future__ import annotations

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.fact_rows import rows
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line

TITLES = {
    "lines": "Step time by line of the job's code",
    "storage": "Storage",
    "exchange": "Communication between the ranks",
}
_LABEL_WIDTH, _LABEL_WIDTH_MAX = 19, 34


def tables(report: Report) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, title, rows) of each table that has rows."""
    known = [(name, title, rows(report.facts, name)) for name, title in TITLES.items()]
    return [table for table in known if table[2]]


def text_lines(report: Report) -> list[Line]:
    out: list[Line] = []
    for _, title, pairs in tables(report):
        out += [[]] if out else []
        out.append(styled_lines.title(title))
        width = min(_LABEL_WIDTH_MAX, max(_LABEL_WIDTH, *(len(label) + 2 for label, _ in pairs)))
        for label, text in pairs:
            name = inert_text.one_line(label, width - 2).ljust(width)
            out += styled_lines.wrapped(name, inert_text.one_line(text, 300), most=3)
    return out


def markdown_lines(report: Report) -> list[str]:
    out: list[str] = []
    for _, title, pairs in tables(report):
        table = inert_text.markdown_table(("what", "value"), [[*map(inert_text.markdown, row)] for row in pairs])
        out += [*([""] if out else []), f"## {title}", "", *table]
    return out
