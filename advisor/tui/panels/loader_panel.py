"""The DataLoaders of the job: what each was made with, where, and of what data."""

from __future__ import annotations

from textual.content import Content

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.loader_words import loader_rows
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose

_LABEL = 24


class LoadersPanel(Panel):
    TITLE = "Data loaders"

    def draw(self, report: Report, width: int) -> list[Content]:
        rows = loader_rows(report.facts)
        if not rows:
            return [line(muted("no DataLoader was seen"))]
        label = min(_LABEL, max(width // 3, 8))
        lines = []
        for row in rows:
            lines.append(line((fit(f"{row.place}  {row.role}", width).rstrip(), "bold")))
            for name, value in row.details:
                first, *more = prose(value, width - label - 4) or ["–"]
                lines.append(line("  ", muted(fit(name, label)), "  ", first))
                lines += [Content(" " * (label + 4) + text) for text in more]
        return lines
