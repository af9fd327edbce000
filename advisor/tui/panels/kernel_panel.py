"""What a rank's arithmetic comes to, and what deep windows saw of its kernels; where none was opened, how one is asked for."""

from __future__ import annotations

from textual.content import Content

from rn50_advisor.advisor.model.gpu.gpu_memory_rows import memory_rows
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepTable, deep_tables
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.gpu_panel import why_not
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose

_NUMBER = 10
_SHARE = 7


class DeepPanel(Panel):
    TITLE = "Arithmetic, memory and kernels"

    def draw(self, report: Report, width: int) -> list[Content]:
        tables = deep_tables(report.facts)
        reached = [
            line(muted(text))
            for label, told in (*roofline_rows(report.facts), *memory_rows(report.facts))
            for text in prose(f"{label}: {told}", width, 3, "  ")
        ]
        if not tables:
            hint = prose("none was opened: run with --deep for kernels by class and the GPU's idle time", width)
            return [*reached, *(line(muted(text)) for text in hint), *why_not(report, ("kernel.window",), width)]
        return [*reached, *(content for table in tables for content in _drawn(table, width))]


def _drawn(table: DeepTable, width: int) -> list[Content]:
    name = max(width - _NUMBER - _SHARE - 2, 8)
    out = [line((fit(table.title, width).rstrip(), "bold"))]
    for label, took, part in table.classes:
        out.append(line(fit(label, name), f"{took:>{_NUMBER}}", muted(f"{part:>{_SHARE}}")))
    for note in table.notes:
        out += [line(muted(text)) for text in prose(f"– {note}", width, 2, "  ")]
    for label, kind, took, _, _ in table.rows:
        room = max(name - 14, 8)
        out.append(line(fit(label, room), " ", muted(fit(kind, max(name - room - 1, 0))), f"{took:>{_NUMBER}}"))
    return out
