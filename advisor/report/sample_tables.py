"""The cost of a sample in text and Markdown reports: one row per transform, loading and the rest."""

from __future__ import annotations

from rn50_advisor.advisor.model.input.sample_cost import sample_table
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line

_SHOWN_IN_TEXT = 6
_NAME = 44
_PLACE = 40


def text_lines(report: Report) -> list[Line]:
    found = sample_table(report.facts)
    if found is None:
        return []
    rows = [
        [inert_text.one_line(name, _NAME), cost, part, fmt.shorten_path(inert_text.one_line(place, 1000), _PLACE)]
        for name, cost, part, place in found.rows[:_SHOWN_IN_TEXT]
    ]
    out: list[Line] = [styled_lines.title("cost per sample")]
    out += styled_lines.table(["part", "CPU per sample", "share", "at"], rows)
    hidden = found.hidden + max(0, len(found.rows) - _SHOWN_IN_TEXT)
    return [
        *out,
        *styled_lines.wrapped("", found.notes + (f"; {hidden} more parts are in the JSON report" if hidden else "")),
    ]


def markdown_lines(report: Report) -> list[str]:
    found = sample_table(report.facts)
    if found is None:
        return []
    rows = [
        (inert_text.markdown(name), cost, part, inert_text.markdown_cell_code(place))
        for name, cost, part, place in found.rows
    ]
    table = inert_text.markdown_table(("part", "CPU per sample", "share", "at"), rows, right=(1, 2))
    return ["## Cost per sample", "", *table, "", inert_text.markdown(found.notes) + "."]
