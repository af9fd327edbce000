"""Where the screen puts a report that somebody saves from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import render


def saver(run: Path) -> Callable[[Report, str], Path]:
    """Writes `report.<format>` into the run's folder, and replaces it there; beside a bundle. Raises OSError."""

    def save(report: Report, format: str) -> Path:
        folder = run if run.is_dir() else run.parent
        path = folder / f"report.{'txt' if format == 'text' else format}"
        path.write_text(render(report, format), encoding="utf-8", errors="replace")
        return path

    return save
