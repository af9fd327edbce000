"""Logging overhead.

What it does: finds loops that spend a noticeable share of the step between the optimizer and the next fetch, or between
the backward pass and the optimizer, in file writes, prints or loggers.

Fires when: time between steps is ≥ 5 % of the step, mostly in output.

Why it is slow: no step is computed while a line is formatted, written or flushed. `print(loss)` also waits for the
accelerator.

Evidence: time between steps; the share of the stack samples taken there that were in output; file and line.

Fix: log every N steps, buffer, or hand the record to a background thread.

Estimate: at best none of the time between steps remains (logging in the background) and the caches stay warm; at worst
a quarter of it remains; logging every tenth step leaves a tenth. If a thread of the logging library holds the interpreter beside the
steps, their waits for cores go with it, or half of them. If most of it came only once, no gain is certain.

False alarms: evaluation and checkpoints are labelled and not counted here.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Finding
from rn50_advisor.advisor.model.measures.step_measures import GAP_IO_SHARE, STEP_GAP_S, STEP_TIME_S
from rn50_advisor.rules.loop.between_steps import (
    gap_evidence,
    gap_fix,
    gap_place,
    gap_saving,
    gap_severity,
    helped_by_a_thread,
    hottest,
    longest_gap,
    on_ranks,
    ranks_that_spend,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical["gap"], a.value(STEP_TIME_S)
    level = gap_severity(a, spent / step)
    if spent < t["gap"] * step or a.value(GAP_IO_SHARE) < t["output"] or level is None:
        return Clear(RULE.id)
    if a.meta.traced and longest_gap(a) is not None:  # a few steps do not show whether it recurs
        return Clear(RULE.id)
    line, where = hottest(a, output=True)
    whose = ranks_that_spend(a, "gap")
    return Finding(
        rule=RULE.id,
        title=f"Blocking logging {gap_place(a)}" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a),
        seconds_per_step=spent,
        evidence=gap_evidence(a, spent, t["gap"], line),
        fixes=(gap_fix(a, "log every N steps, buffered or in the background", where, "one line"),),
        saving=gap_saving(a, "logging every tenth step", with_thread=helped_by_a_thread(a)),
    )


RULE = rule(
    __name__,
    "Logging overhead",
    check,
    needs=(STEP_TIME_S, STEP_GAP_S, GAP_IO_SHARE),
    thresholds={
        "gap": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "output": Threshold(0.5, "most of the samples"),
    },
    traced=True,
)
