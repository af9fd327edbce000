"""The DataLoaders of the job in the text and Markdown reports: a line each, and in Markdown all that is known, folded."""

from __future__ import annotations

from advisor.core.format import shorten_path
from advisor.core.loader_words import loader_rows
from advisor.core.report import Report
from advisor.report import inert, lines
from advisor.report.lines import Line

_SHOWN_IN_TEXT = 6


def text_lines(report: Report) -> list[Line]:
    rows = loader_rows(report.facts)
    out: list[Line] = [lines.title("data loaders")] if rows else []
    for row in rows[:_SHOWN_IN_TEXT]:
        place = shorten_path(inert.one_line(row.place), 80)
        out += [[("  ", ""), (place, ""), (f"  {row.role}", "dim")], *lines.wrapped("", row.short, indent=4, most=3)]
    if len(rows) > _SHOWN_IN_TEXT:
        out += lines.wrapped("", f"{len(rows) - _SHOWN_IN_TEXT} more are in the JSON report", "dim")
    return out


def markdown_lines(report: Report) -> list[str]:
    rows = loader_rows(report.facts)
    if not rows:
        return []
    out = ["## Data loaders", ""]
    out += [f"- {inert.markdown_code(row.place)} {row.role}: {inert.markdown(row.short)}" for row in rows]
    out += [
        "",
        "<details><summary>All their arguments</summary>",
        "",
        "| loader | what | value |",
        "| --- | --- | --- |",
    ]
    for row in rows:
        place = inert.markdown_cell_code(row.place)
        out += [f"| {place} | {inert.markdown(label)} | {inert.markdown(value)} |" for label, value in row.details]
    return [*out, "", "</details>"]
