"""What a sample costs, in the text and Markdown reports: a row for each transform, loading and the rest."""

from __future__ import annotations

from advisor.core import format as fmt
from advisor.core.report import Report
from advisor.core.sample_cost import sample_table
from advisor.report import inert, lines
from advisor.report.lines import Line

_SHOWN_IN_TEXT = 6
_NAME = 44
_PLACE = 40


def text_lines(report: Report) -> list[Line]:
    found = sample_table(report.facts)
    if found is None:
        return []
    rows = [
        [inert.one_line(name, _NAME), cost, part, fmt.shorten_path(inert.one_line(place, 1000), _PLACE)]
        for name, cost, part, place in found.rows[:_SHOWN_IN_TEXT]
    ]
    out: list[Line] = [lines.title("what a sample costs")]
    out += lines.table(["part", "CPU a sample", "share", "at"], rows)
    hidden = found.hidden + max(0, len(found.rows) - _SHOWN_IN_TEXT)
    return [*out, *lines.wrapped("", found.notes + (f"; {hidden} more parts are in the JSON report" if hidden else ""))]


def markdown_lines(report: Report) -> list[str]:
    found = sample_table(report.facts)
    if found is None:
        return []
    out = ["## What a sample costs", "", "| part | CPU a sample | share | at |", "| --- | ---: | ---: | --- |"]
    for name, cost, part, place in found.rows:
        at = inert.markdown_cell_code(place) if place else ""
        out.append(f"| {inert.markdown(name)} | {cost} | {part} | {at} |")
    return [*out, "", inert.markdown(found.notes) + "."]
