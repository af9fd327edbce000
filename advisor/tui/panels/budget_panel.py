"""The step's time by phase: a stacked bar for the critical path and one per rank, and the legend of their letters."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.quantities import duration, share
from rn50_advisor.advisor.tui.panels.panel import Panel
from rn50_advisor.advisor.tui.styles.drawing import fit, line, muted, prose, stacked
from rn50_advisor.advisor.tui.styles.phase_styles import in_order, phase_style, short_title, title

_LABEL, _VALUE = 9, 8


def legend(budget: Mapping[str, float], width: int, brief: bool = False) -> list[Content]:
    """Letter, name, share and seconds of each phase, in as many columns as fit."""
    phases = in_order(dict(budget))
    total = sum(seconds for _, seconds in phases) or 1.0
    columns = max(min(width // (25 if brief else 36), len(phases)), 1)
    cell = width // columns
    cells = []
    for phase, seconds in phases:
        seen = phase_style(phase)
        mark = (f" {seen.letter}{seen.fill} ", f"auto on {seen.colour}")
        numbers = f"{share(seconds / total):>6}" + ("" if brief else f" {duration(seconds):>8}")
        name_width = max(min(cell - 6 - len(numbers), 24), 4)
        name = fit(title(phase) if len(title(phase)) <= name_width else short_title(phase), name_width)
        cells.append(line(mark, " ", name, (numbers, "bold"), " " * max(cell - 5 - len(name) - len(numbers), 0)))
    rows = -(-len(cells) // columns)
    return [line(*cells[row::rows]) for row in range(rows)]


def most_ranks(terminal_lines: int) -> int:
    """More go to the table of ranks, so that the capacities below stay in sight."""
    return 2 if terminal_lines < 28 else 4 if terminal_lines < 40 else 8


def ranks_to_show(report: Report, most: int) -> tuple[list[int], int]:
    """All ranks, or those most often late; and how many are left out."""
    ranks = sorted(report.budget.per_rank)
    if len(ranks) <= most:
        return ranks, 0
    late = {strip.rank: strip.late_share or 0.0 for strip in report.ranks}
    chosen = sorted(sorted(ranks, key=lambda rank: -late.get(rank, 0.0))[: most - 1])
    return chosen, len(ranks) - len(chosen)


class BudgetPanel(Panel):
    TITLE = "Step time breakdown"

    def draw(self, report: Report, width: int) -> list[Content]:
        budget = report.budget
        if not budget.critical and not any(budget.per_rank.values()):
            if report.step_time.steps == 0:
                return [line(muted("no step has ended yet"))]
            return [line(muted("not measured: no rank marked its phases"))]
        bar_width = max(width - _LABEL - _VALUE - 2, 1)
        shown, left_out = ranks_to_show(report, most_ranks(self.terminal_lines))
        rows = [("critical", budget.critical), *((f"rank {rank}", budget.per_rank[rank]) for rank in shown)]
        scale = max(sum(in_order_seconds(phases)) for _, phases in rows)
        lines = []
        for label, phases in rows:
            seconds = sum(in_order_seconds(phases))
            style = "bold" if label == "critical" else ""
            value = fit(duration(seconds) if seconds else "–", _VALUE, True)
            lines.append(line((fit(label, _LABEL), style), stacked(phases, bar_width, scale), " ", (value, style)))
        if left_out:
            lines.append(line(muted(fit(f"and {left_out} ranks more: see Ranks", width))))
        note = (
            "communication: transfer time only on the critical path; on a rank also its waiting for others"
            if width >= 90 and self.terminal_lines >= 40
            else ""
        )
        notes = [line(muted(text)) for text in prose(note, width, 1)] if len(shown) > 1 else []
        return [*lines, *legend(budget.critical or budget.per_rank[shown[0]], width, self.brief), *notes]


def in_order_seconds(phases: Mapping[str, float]) -> list[float]:
    return [seconds for _, seconds in in_order(dict(phases))]
