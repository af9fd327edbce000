"""Loop-invariant compute.

What it does: finds lines of the job's own code that the step runs although they give the same each time: a mask or a table of positions
built in each forward pass, a matrix normalised anew, a filter bank, a grid, weights of classes.

Fires when: the training thread computes ≥ 6 % of the step in such lines.

Why it is slow: the step pays each time for what one computation would have given.

Evidence: a profile of the training thread's stacks, and the source of the functions in it: what the line uses comes neither from the
batch's values nor from parameters, random numbers, or anything that the loop or the object changes. Shapes may come from the batch.

Fix: compute it once: before the loop, in `__init__` (`register_buffer` moves it with the model), or once for each shape
(`functools.lru_cache`), and take the part that a batch needs.

Estimate: the step without the line. The share is uncertain by one and a half standard errors of the samples; at worst a tenth of it
remains.

False alarms: below 6 % of the step the rule stays silent. A tensor that is changed in place elsewhere (by a model that is called with
it, for one) looks the same to the source. A result that depends on the batch's shape is the same only for batches of one shape.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_REPEATED_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap")
_LEFT_WORST = 0.1  # of the line, at worst: taking the part that a batch needs


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "computes a loop-invariant result", a.repeated_lines
    found = own_code(RULE.id, a, STEP_REPEATED_S, lines, least=t["computing"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Loop-invariant compute: {lines[0].function}",
        fix=Fix(
            "compute it once, and slice what each batch needs",
            "before the loop, or self.register_buffer(name, tensor, persistent=False) in __init__; where it depends on a shape, once for "
            "the longest, or functools.lru_cache on a function of the sizes",
            found.where,
            "small change",
        ),
        saving=saving_without(a, found, "the line's work done once", left=_LEFT_WORST, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "Loop-invariant compute",
    check,
    needs=(STEP_TIME_S, STEP_REPEATED_S),
    thresholds={"computing": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few samples scatter")},
)
