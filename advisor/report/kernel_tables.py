"""A rank's arithmetic and memory, and what deep windows saw of its kernels or operators, in the text and Markdown reports."""

from __future__ import annotations

from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepTable, deep_tables
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.styled_lines import Line

_ROWS_IN_TEXT = 6
_NAME = 46
_OPERATOR = 60
_LABEL = 22
_WINDOWS_SHOWN = 4  # one a node is usual


def text_lines(report: Report) -> list[Line]:
    reached = [*roofline_rows(report.facts), *memory_rows(report.facts)]
    out: list[Line] = [styled_lines.title("arithmetic and memory")] if reached else []
    for label, value in reached:
        out += styled_lines.wrapped(label.ljust(_LABEL), value, most=3)
    tables = deep_tables(report.facts)[:_WINDOWS_SHOWN]
    if tables:
        out += [*([[]] if out else []), styled_lines.title("profiled with torch's profiler")]
    for table in tables:
        out += _text(table)
    return out


def _text(table: DeepTable) -> list[Line]:
    shares = ", ".join(f"{name} {took}" + (f" ({part})" if part else "") for name, took, part in table.classes)
    out = styled_lines.wrapped("", table.title, "title")
    out += styled_lines.wrapped("time of  ", shares, most=4) if shares else []
    out += [line for note in table.notes for line in styled_lines.wrapped("", note, most=2)]
    rows = [
        [inert_text.one_line(name, _NAME), kind, took, calls]
        for name, kind, took, calls, _ in table.rows[:_ROWS_IN_TEXT]
    ]
    return out + (styled_lines.table(["longest", "class", "per step", "calls"], rows) if rows else [])


def markdown_lines(report: Report) -> list[str]:
    reached = [*roofline_rows(report.facts), *memory_rows(report.facts)]
    table = inert_text.markdown_table(("what", "value"), [[*map(inert_text.markdown, row)] for row in reached])
    head = ["## Arithmetic and memory", "", *table] if reached else []
    tables = deep_tables(report.facts)[:_WINDOWS_SHOWN]
    if tables:
        head += [*([""] if head else []), "## Profiled with torch's profiler"]
    return [*head, *(line for table in tables for line in _markdown(table))]


def _markdown(table: DeepTable) -> list[str]:
    text, code = inert_text.markdown, inert_text.markdown_cell_code
    classes = [(text(name), took, part) for name, took, part in table.classes]
    longest = [
        (code(name), text(kind), took, calls, code(fmt.shorten(operator, _OPERATOR)))
        for name, kind, took, calls, operator in table.rows
    ]
    out = ["", f"**{text(table.title)}**", "", f"{text('; '.join(table.notes), 1000)}.", ""]
    out += inert_text.markdown_table(("class", "time per step", "share"), classes, right=(1, 2))
    columns = ("longest", "class", "time per step", "calls", "operator")
    return out + (["", *inert_text.markdown_table(columns, longest, right=(2, 3))] if longest else [])
