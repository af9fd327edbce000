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
    for label, told in reached:
        out += styled_lines.wrapped(label.ljust(_LABEL), told, most=3)
    tables = deep_tables(report.facts)[:_WINDOWS_SHOWN]
    if tables:
        out += [*([[]] if out else []), styled_lines.title("looked into with torch's profiler")]
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
    return out + (styled_lines.table(["longest", "class", "a step", "calls"], rows) if rows else [])


def markdown_lines(report: Report) -> list[str]:
    out: list[str] = []
    rows = [*roofline_rows(report.facts), *memory_rows(report.facts)]
    reached = [f"| {inert_text.markdown(label)} | {inert_text.markdown(told)} |" for label, told in rows]
    head = ["## Arithmetic and memory", "", "| what | value |", "| --- | --- |", *reached] if reached else []
    for table in deep_tables(report.facts)[:_WINDOWS_SHOWN]:
        out += [
            "",
            f"**{inert_text.markdown(table.title)}**",
            "",
            f"{inert_text.markdown('; '.join(table.notes), 1000)}.",
            "",
        ]
        out += ["| class | time a step | share |", "| --- | ---: | ---: |"]
        out += [f"| {inert_text.markdown(name)} | {took} | {part} |" for name, took, part in table.classes]
        if table.rows:
            out += ["", "| longest | class | time a step | calls | operator |", "| --- | --- | ---: | ---: | --- |"]
        for name, kind, took, calls, operator in table.rows:
            at = inert_text.markdown_cell_code(fmt.shorten(operator, _OPERATOR)) if operator else ""
            out.append(
                f"| {inert_text.markdown_cell_code(name)} | {inert_text.markdown(kind)} | {took} | {calls} | {at} |"
            )
    if out:
        head += [*([""] if head else []), "## Looked into with torch's profiler"]
    return [*head, *out]
