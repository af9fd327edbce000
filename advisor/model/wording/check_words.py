"""Wording of how much of a job was checked: checks that were made of those that apply to it, and verdicts on few steps."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.report import OutcomeRow, Report
from rn50_advisor.advisor.model.wording.quantities import counted

# Prefixes of measures that exist only on GPUs, and only with several ranks.
GPU_PREFIXES = ("gpu.", "sync.", "copy.", "precision.", "layout.", "batch.", "parallel.", "reference.")
COMM_PREFIXES = ("comm.", "collectives.", "ddp.")
# Steady steps from which a job is called healthy: two standard errors of the mean of 30 steps that scatter by a third are 12 %, less than
# the 15 % of a step that a verdict may leave unexplained.
_STEPS_MIN = 30


def is_preliminary(report: Report) -> bool:
    """True if nothing was found, but in too few steps to call the job healthy."""
    return report.verdict.state == "healthy" and report.step_time.steady_steps < _STEPS_MIN


def preliminary_words(report: Report) -> str:
    """`No bottleneck so far (5 steps)`."""
    when = "so far" if report.job.running else "seen"
    return f"No bottleneck {when} ({counted(report.step_time.steps, 'step')})"


def made_and_applying(report: Report) -> tuple[int, int]:
    """The number of checks that were made, and of those that apply to the job: without GPUs or other ranks, theirs do not."""
    applying = [row for row in report.outcomes if not _is_about_what_is_absent(row, report)]
    return sum(row.state in ("fired", "clear") for row in applying), len(applying)


def coverage(report: Report) -> str:
    """`48 of 55 checks made`; empty without checks."""
    made, applying = made_and_applying(report)
    return f"{made} of {counted(applying, 'check')} made" if applying else ""


def _is_about_what_is_absent(row: OutcomeRow, report: Report) -> bool:
    absent = (*(() if _has_gpu(report) else GPU_PREFIXES), *(COMM_PREFIXES if report.job.ranks == 1 else ()))
    return row.state == "not_measured" and any(metric.startswith(absent) for metric in row.missing)


def _has_gpu(report: Report) -> bool:
    return bool(report.gpus) or any(isinstance(f, Mapping) and f.get("cuda") for f in report.facts.values())
