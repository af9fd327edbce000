"""A rank's arithmetic and memory, and what deep windows saw of its kernels or operators, in the text and Markdown reports."""

from __future__ import annotations

from advisor.core import format as fmt
from advisor.core.device_memory import memory_rows
from advisor.core.kernels import DeepTable, deep_tables
from advisor.core.report import Report
from advisor.core.roofline import roofline_rows
from advisor.report import inert, lines
from advisor.report.lines import Line

_ROWS_IN_TEXT = 6
_NAME = 46
_OPERATOR = 60
_LABEL = 22
_WINDOWS_SHOWN = 4  # one a node is usual


def text_lines(report: Report) -> list[Line]:
    reached = [*roofline_rows(report.facts), *memory_rows(report.facts)]
    out: list[Line] = [lines.title("arithmetic and memory")] if reached else []
    for label, told in reached:
        out += lines.wrapped(label.ljust(_LABEL), told, most=3)
    tables = deep_tables(report.facts)[:_WINDOWS_SHOWN]
    if tables:
        out += [*([[]] if out else []), lines.title("looked into with torch's profiler")]
    for table in tables:
        out += _text(table)
    return out


def _text(table: DeepTable) -> list[Line]:
    shares = ", ".join(f"{name} {took}" + (f" ({part})" if part else "") for name, took, part in table.classes)
    out = lines.wrapped("", table.title, "title")
    out += lines.wrapped("time of  ", shares, most=4) if shares else []
    out += [line for note in table.notes for line in lines.wrapped("", note, most=2)]
    rows = [
        [inert.one_line(name, _NAME), kind, took, calls] for name, kind, took, calls, _ in table.rows[:_ROWS_IN_TEXT]
    ]
    return out + (lines.table(["longest", "class", "a step", "calls"], rows) if rows else [])


def markdown_lines(report: Report) -> list[str]:
    out: list[str] = []
    rows = [*roofline_rows(report.facts), *memory_rows(report.facts)]
    reached = [f"| {inert.markdown(label)} | {inert.markdown(told)} |" for label, told in rows]
    head = ["## Arithmetic and memory", "", "| what | value |", "| --- | --- |", *reached] if reached else []
    for table in deep_tables(report.facts)[:_WINDOWS_SHOWN]:
        out += ["", f"**{inert.markdown(table.title)}**", "", f"{inert.markdown('; '.join(table.notes), 1000)}.", ""]
        out += ["| class | time a step | share |", "| --- | ---: | ---: |"]
        out += [f"| {inert.markdown(name)} | {took} | {part} |" for name, took, part in table.classes]
        if table.rows:
            out += ["", "| longest | class | time a step | calls | operator |", "| --- | --- | ---: | ---: | --- |"]
        for name, kind, took, calls, operator in table.rows:
            at = inert.markdown_cell_code(fmt.shorten(operator, _OPERATOR)) if operator else ""
            out.append(f"| {inert.markdown_cell_code(name)} | {inert.markdown(kind)} | {took} | {calls} | {at} |")
    if out:
        head += [*([""] if head else []), "## Looked into with torch's profiler"]
    return [*head, *out]
