"""Findings sorted by the time that their fixes save, with the time and GPU-hours saved over the recorded run."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import Report

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Opportunity:
    finding: Finding
    saved_s: float  # a step, likely
    run_s: tuple[float, float]  # over all steps of the run
    gpu_hours: tuple[float, float] | None  # None: no rank's GPU is known


def split(report: Report, roots: list[Finding]) -> tuple[list[Opportunity], list[Finding]]:
    """Of these findings those with a predicted gain, the largest saving first, and the rest in their order."""
    found = [_opportunity(finding, report) for finding in roots if _saves(finding)]
    found.sort(key=lambda one: -one.saved_s)
    return found, [finding for finding in roots if not _saves(finding)]


@dataclass(frozen=True, slots=True)
class TimeLost:
    """Time that the verdict's finding has cost: the likely saving of its fix per step, times the steps made. See docs/screen.md."""

    lost_s: float | None  # None: not known, for the reason in `unknown`
    run_s: float = 0.0
    gpu_hours: float | None = None  # None: no rank's GPU is known
    rule: str = ""
    unknown: str = ""


def time_lost(report: Report) -> TimeLost:
    rule, run_s = report.verdict.rule, report.job.duration_s
    finding = next((f for f in report.findings if f.rule == rule), None)
    if finding is None:
        healthy = report.verdict.state == "healthy"
        return TimeLost(
            None, run_s, unknown="none that a fix would save" if healthy else "not known: there is no verdict yet"
        )
    if not _saves(finding):
        return TimeLost(None, run_s, rule=finding.rule, unknown=f"not known: no gain is predicted for {finding.rule}")
    lost_s = min(_opportunity(finding, report).saved_s * report.step_time.steps, run_s)
    gpus = gpus_used(report)
    return TimeLost(lost_s, run_s, lost_s * gpus / _SECONDS_PER_HOUR if gpus else None, finding.rule)


def gpus_used(report: Report) -> int:
    """The number of GPUs that ranks run on."""
    return sum(1 for gpu in report.gpus if gpu.ranks)


def _saves(finding: Finding) -> bool:
    saving = finding.saving
    return saving is not None and not finding.fatal and saving.is_gain and saving.seconds_per_step[1] > 0


def _opportunity(finding: Finding, report: Report) -> Opportunity:
    assert finding.saving is not None
    low_s, high_s = (max(0.0, s) for s in finding.saving.seconds_per_step)
    run_s = low_s * report.step_time.steps, high_s * report.step_time.steps
    gpus = gpus_used(report)
    hours = (run_s[0] * gpus / _SECONDS_PER_HOUR, run_s[1] * gpus / _SECONDS_PER_HOUR) if gpus else None
    return Opportunity(finding, _likely_s(finding, report, (low_s + high_s) / 2), run_s, hours)


def _likely_s(finding: Finding, report: Report, middle_s: float) -> float:
    """The saving of the likely speed-up; the middle of the range without one."""
    saving, steps_per_s = finding.saving, report.throughput.steps_per_s
    if saving is None or saving.likely is None or saving.likely <= 0 or not steps_per_s:
        return middle_s
    return (1.0 - 1.0 / saving.likely) / steps_per_s
