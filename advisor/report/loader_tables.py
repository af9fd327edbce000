"""The DataLoaders of the job in the text and Markdown reports: a line each, and in Markdown all that is known, folded."""

from __future__ import annotations

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.loader_words import loader_rows
from rn50_advisor.advisor.model.wording.quantities import shorten_path
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line

_SHOWN_IN_TEXT = 6


def text_lines(report: Report) -> list[Line]:
    rows = loader_rows(report.facts)
    out: list[Line] = [styled_lines.title("data loaders")] if rows else []
    for row in rows[:_SHOWN_IN_TEXT]:
        place = shorten_path(inert_text.one_line(row.place), 80)
        out += [
            [("  ", ""), (place, ""), (f"  {row.role}", "dim")],
            *styled_lines.wrapped("", row.short, indent=4, most=3),
        ]
    if len(rows) > _SHOWN_IN_TEXT:
        out += styled_lines.wrapped("", f"{len(rows) - _SHOWN_IN_TEXT} more are in the JSON report", "dim")
    return out


def markdown_lines(report: Report) -> list[str]:
    rows = loader_rows(report.facts)
    if not rows:
        return []
    out = ["## Data loaders", ""]
    out += [f"- {inert_text.markdown_code(row.place)} {row.role}: {inert_text.markdown(row.short)}" for row in rows]
    arguments = [
        (inert_text.markdown_cell_code(row.place), inert_text.markdown(label), inert_text.markdown(value))
        for row in rows
        for label, value in row.details
    ]
    table = inert_text.markdown_table(("loader", "what", "value"), arguments)
    return [*out, "", "<details><summary>All arguments</summary>", "", *table, "", "</details>"]
