"""The loop spends time outside the step.

What it does: finds loops that spend a noticeable share of the step between the optimizer and the next fetch, or between the backward pass
and the optimizer, on something that is neither evaluation nor a checkpoint nor output, and names the line.

Why it is slow: nothing is computed and nothing is fetched meanwhile.

Evidence: time between steps; the line of user code that stack samples found there most often.

Fix: that line: move it out of the loop, do it every N steps, or in the background.

Estimate: the time between steps, less what any loop needs; at best with caches that stay warm, and ranks that wait for cores by turns
where one of them kept the others waiting.

False alarms: the schedule and the metrics of a very short step; below 5 % or a fifth of a millisecond nothing is said. Clipping and
unscaling gradients and averaging them over ranks have to stand between backward and optimizer, and are not counted, by hand or not. Nor is
waiting there for a GPU that is still at work.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Finding, Fix
from rn50_advisor.rules.loop.between_steps import (
    gap_evidence,
    gap_saving,
    gap_severity,
    hottest,
    on_ranks,
    ranks_that_spend,
    where_it_stands,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_SCRIPT = "<module>"  # what Python calls code that stands in no function


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical["gap"], a.value("step.time_s")
    level = gap_severity(a, spent / step)
    if spent < max(t["gap"] * step, t["seconds"]) or _told_elsewhere(a) >= t["output"] or level is None:
        return Clear(RULE.id)
    line, where = hottest(a, output=False)
    fix = (
        f"move {'this line' if line.function == _SCRIPT else line.function} out of the loop, or do it every N steps"
        if line
        else "profile what the loop does after optimizer.step()"
    )
    whose = ranks_that_spend(a, "gap")
    return Finding(
        rule=RULE.id,
        title=f"The loop spends time {where_it_stands(a)}" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a, cap=0.95 if line else 0.7),
        seconds_per_step=spent,
        evidence=gap_evidence(a, spent, t["gap"], line),
        fixes=(Fix(fix, "", where, "small change"),),
        saving=gap_saving(a, "doing it every tenth step"),
    )


def _told_elsewhere(a: Analysis) -> float:
    """Of the time between steps, what is output or what is a checkpoint's, whichever is more."""
    return max(a.get("gap.io_share") or 0.0, a.get("gap.save_share") or 0.0)


RULE = rule(
    __name__,
    "the loop spends time outside the step",
    check,
    needs=("step.time_s", "step.gap_s"),
    explains=("COM002",),
    thresholds={
        "gap": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "seconds": Threshold(
            0.0002, "a schedule, an accuracy and a sum of losses took 0.06 ms a step; cores are slower, metrics more"
        ),
        "output": Threshold(0.5, "from here on it is LOP002's, or LOP001's"),
    },
)
