"""Readings of hand-made reports, as outlets get them. Not a test."""

from __future__ import annotations

from dataclasses import replace

from report_samples import running
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.outlets.outlet import RunReading

AT_UNIX_S, STARTED_UNIX_S = 1_700_000_100.0, 1_700_000_000.0


def reading(report: Report | None = None, *, run: str = "20250131-120000-first", is_last: bool = False) -> RunReading:
    """Of a running job unless a report is given."""
    return RunReading(report or running(), run, "node0", AT_UNIX_S, STARTED_UNIX_S, is_last)


def ended(exit_code: int | None, exit_signal: str | None = None) -> RunReading:
    """The last reading of a job that ended so."""
    report = running()
    job = replace(report.job, running=False, exit_code=exit_code, exit_signal=exit_signal)
    return reading(replace(report, job=job), is_last=True)
