"""Non-PyTorch compute inside the step.

What it does: finds models, losses and hooks that compute in numpy, scipy, OpenCV or Python's own libraries in the middle of the step.

Fires when: the training thread computes ≥ 10 % of the step in other libraries than torch, called from the model's forward, a
loss, or a hook.

Why it is slow: such a call runs on one core, mostly for one sample after the other. No worker does it ahead, autograd records
nothing of it, and a GPU waits until its numbers have been copied to the host and back.

Evidence: a profile of the training thread's stacks: the share of the samples in other libraries than torch, below a line of the
user's that torch called, or in a line whose result the backward pass uses. On a GPU at most the time in which it had nothing queued.

Fix: the same with tensors, for the whole batch at once; what needs no output of the model belongs to the data set.

Estimate: at best the step without these lines; at worst half of their time remains.

False alarms: below 10 % of the step the rule stays silent. Code that has no counterpart in torch (an assignment problem, a
dynamic program) may have to stay; then it can run for all samples at once in threads, or in every few steps. Libraries that call torch
themselves are not counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_FOREIGN_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "backward")
_LEFT_WORST = 0.5  # of these lines, at worst


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "computes in libraries other than PyTorch", a.foreign_lines
    found = own_code(RULE.id, a, STEP_FOREIGN_S, lines, least=t["computing"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Non-PyTorch compute inside the step: {lines[0].function}",
        fix=Fix(
            "compute this with tensors for the whole batch",
            "move what needs no model output to the data set, where workers prefetch it",
            found.where,
            "small change",
        ),
        saving=saving_without(a, found, "none of it, or half of it", left=_LEFT_WORST, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "Non-PyTorch compute inside the step",
    check,
    needs=(STEP_TIME_S, STEP_FOREIGN_S),
    thresholds={"computing": Threshold(0.1, "of the step: assignments and masks of a few ms are part of many losses")},
)
