"""Saves a report from the screen and for the browser, and keeps the verdict of a run beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.report import render


def saver(run: Path) -> Callable[[Report, str], Path]:
    """Returns a function that writes or replaces `report.<format>` in the run's folder or beside a bundle. It raises OSError."""

    def save(report: Report, format: str) -> Path:
        folder = run if run.is_dir() else run.parent
        path = folder / f"report.{'txt' if format == 'text' else format}"
        path.write_text(render(report, format), encoding="utf-8", errors="replace")
        return path

    return save


def page_for_browser(report: Report, run: Path) -> Path:
    """Writes `report.html` into the run's folder, or into a temporary folder where that is none or cannot be written. Raises OSError."""
    if run.is_dir():
        try:
            return saver(run)(report, "html")
        except OSError:
            pass  # an archive that is mounted read-only, or somebody else's run
    return in_temporary_folder(report, "html")


def keep_verdict(folder: Path, settings: Config) -> None:
    """Finds a run's verdict and keeps it in its folder. Raises AdvisorError and OSError."""
    from rn50_advisor.advisor.merge.job_reading import read_job
    from rn50_advisor.advisor.store.run_summary import summary_of, write_summary
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    recording = read_job(folder)
    write_summary(folder, summary_of(diagnose(recording, settings), recording))


def in_temporary_folder(report: Report, format: str) -> Path:
    """Writes `report.<format>` into a new temporary folder, where it replaces nobody's file. Raises OSError."""
    return saver(Path(tempfile.mkdtemp(prefix="rn50-advisor-")))(report, format)
