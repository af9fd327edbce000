"""Reads a recorded run off the first view of its replay, and what of its verdict must stand there. Not a test."""

from __future__ import annotations

import math
from pathlib import Path

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.verdict_lines import clipped, verdict_finding
from rn50_advisor.advisor.tui.report_source import ReplayedRun
from tui_doubles import screen_lines, settle, shown

FIRST_VIEW_SIZES = [(80, 24), (120, 36)]


async def first_view(run: Path, size: tuple[int, int]) -> tuple[list[str], Report]:
    """The lines that `watch` shows of the end of a run, and the report that they are of."""
    source = ReplayedRun(run)
    source.poll()
    source.seek(math.inf)
    async with shown(source, size) as (app, pilot):
        await settle(app, pilot)
        assert app.report is not None
        return screen_lines(app), app.report


def missing_of(lines: list[str], report: Report) -> list[str]:
    """What of the verdict is not in the lines: rule, evidence, what to type or change and where, the gain with its likely value."""
    finding = verdict_finding(report)
    assert finding is not None
    head, why, fix, gain = lines[:4]
    advised = finding.fixes[0]
    wanted = [
        (head, f" {finding.rule} "),
        (head, clipped(finding.title, 24).removesuffix("…").strip()),
        (why, " WHY  "),
        (fix, " FIX  "),
        (gain, " GAIN "),
        (fix, advised.typed[0] if advised.typed else advised.title[:12]),
    ]
    if advised.where:
        wanted.append((fix, f"{Path(advised.where.file).name}:{advised.where.line}"))
    if finding.saving is not None and finding.saving.is_gain and not finding.fatal:
        wanted.append((gain, "×"))
    return [part for line, part in wanted if part not in line] + [line for line in (why, fix) if len(line) < 12]
