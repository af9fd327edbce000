"""The training efficiency score: the share of a step that is useful compute. Defined with a worked example in docs/efficiency.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.report import INPUT_OR_FORWARD, Report

COMPUTE_PHASES = ("forward", "backward", "optimizer")
# As for a healthy verdict (`check_words`): the mean of 30 steps that scatter by a third is within 12 %.
STEADY_STEPS_MIN = 30
# Of a step. Time that no mark covers may be compute or not: with more of it the score would depend on the guess.
UNATTRIBUTED_SHARE_MAX = 0.15


@dataclass(frozen=True, slots=True)
class Efficiency:
    """`score`: 0 to 100, or None with the reason in `unknown`. All times in seconds per step, on the critical path."""

    score: int | None
    unknown: str = ""
    step_s: float = 0.0
    compute_s: float = 0.0
    lost_s: float = 0.0  # by the costliest finding
    lost_to: str = ""  # its rule

    @property
    def useful_s(self) -> float:
        return max(0.0, min(self.compute_s, self.step_s - self.lost_s))


def efficiency(report: Report) -> Efficiency:
    """The smaller of the time in compute phases and the step without its costliest loss, as a share of the step."""
    unknown = _unknown(report)
    if unknown:
        return Efficiency(None, unknown)
    account = report.budget.critical
    worst = max(report.findings, key=lambda finding: finding.seconds_per_step, default=None)
    found = Efficiency(
        score=None,
        step_s=sum(account.values()),
        compute_s=sum(account.get(phase, 0.0) for phase in COMPUTE_PHASES),
        lost_s=worst.seconds_per_step if worst is not None else 0.0,
        lost_to=worst.rule if worst is not None and worst.seconds_per_step > 0 else "",
    )
    score = round(100 * found.useful_s / found.step_s)
    return Efficiency(score, "", found.step_s, found.compute_s, found.lost_s, found.lost_to)


def _unknown(report: Report) -> str:
    """The reason why there is no score; empty if there is one."""
    state, steps, account = report.verdict.state, report.step_time.steady_steps, report.budget.critical
    step_s = sum(account.values())
    cause = _of_the_verdict(report)
    reasons = (
        (state == "failed", "the job failed"),
        (steps < STEADY_STEPS_MIN, f"{steps} steady steps observed, {STEADY_STEPS_MIN} are needed"),
        (state == "inconclusive", "the verdict is inconclusive"),
        (not (math.isfinite(step_s) and step_s > 0), "the time of a step was not divided into phases"),
        (
            account.get(INPUT_OR_FORWARD, 0.0) > 0,
            "no loader was seen: waiting for input cannot be separated from forward",
        ),
        (account.get("unattributed", 0.0) > UNATTRIBUTED_SHARE_MAX * step_s, "too much of the step is unattributed"),
        (
            cause is not None and not cause.seconds_per_step > 0,
            f"the time that {report.verdict.rule} costs is not known",
        ),
    )
    return next((why for holds, why in reasons if holds), "")


def _of_the_verdict(report: Report) -> Finding | None:
    return next((f for f in report.findings if f.rule == report.verdict.rule), None)
