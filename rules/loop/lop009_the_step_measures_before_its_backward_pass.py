"""Metrics computed before the backward pass.

What it does: finds loops that compute metrics or similar values from the model's output, in a library other than torch,
before they start the backward pass.

Fires when: the training thread computes ≥ 5 % of the step in other libraries than torch, called by the script's own lines between the model
and the backward pass (metrics).

Why it is slow: the training thread does this work in each step: accuracy by scikit-learn, a table, a plot. On a GPU the
backward pass is not even queued meanwhile, and the host must wait for the model's output.

Evidence: a profile of the training thread's stacks: the share of the samples in another library, called by the script's
own lines after the model and before the backward pass. On a GPU at most the time in which it had nothing queued.

Fix: run it every N steps, or on values accumulated on the device; or after the update, while a GPU is working.

Estimate: the step with a tenth of it, plus or minus one and a half standard errors of the samples; at worst a quarter
of it remains.

False alarms: below 5 % of the step the rule stays silent. Lines that compute with tensors may be the loss, which is
needed, and are not counted; nor is output that is printed or logged through torch. A loss from another library is
needed all the same: then make it cheaper.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_MEASURING_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, step_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_LEFT_WORST, _LEFT_EVERY_TENTH = 0.25, 0.1  # of it, at worst and as advised


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing = "computes between the model and the backward pass"
    found = own_code(RULE.id, a, STEP_MEASURING_S, a.measuring_lines, least=t["measuring"], doing=doing)
    if not isinstance(found, OwnCode):
        return found
    model = model_of(a)
    best, worst = (
        step_without(a, found.seconds, part)
        for part in (1.0 - _LEFT_EVERY_TENTH + found.error, 1.0 - max(_LEFT_WORST, _LEFT_EVERY_TENTH + found.error))
    )
    advice = "or accumulate on the device and compute it at the end of the epoch"
    return finding_of(
        RULE.id,
        a,
        found,
        "Metrics computed before the backward pass",
        fix=Fix("run it every N steps", advice, found.where, "small change"),
        saving=model.saving(model.at_best(best), worst, "running it every tenth step"),
    )


RULE = rule(
    __name__,
    "Metrics computed before the backward pass",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"measuring": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
