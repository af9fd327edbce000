"""Saves a report from the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import render


def saver(run: Path) -> Callable[[Report, str], Path]:
    """Returns a function that writes or replaces `report.<format>` in the run's folder or beside a bundle. It raises OSError."""

    def save(report: Report, format: str) -> Path:
        folder = run if run.is_dir() else run.parent
        path = folder / f"report.{'txt' if format == 'text' else format}"
        path.write_text(render(report, format), encoding="utf-8", errors="replace")
        return path

    return save
