"""Python loop over tensor elements.

What it does: finds Python loops in the step that take, compare or set single elements of tensors or arrays: targets assigned box
by box, matrices filled in two loops, numbers read with `.item()`.

Fires when: the training thread computes ≥ 8 % of the step in such loops.

Why it is slow: each of these operations takes some microseconds in Python and torch, however little it computes, on one core. As
tensor operations the same numbers take a few calls.

Evidence: a profile of the training thread's stacks: the share of the samples in loops whose source makes Python numbers of elements
(`int(x[i])`, `x[i].item()`) or takes them by several indices (`x[i, j]`). Modules, losses and backward passes called there do not count.

Fix: index all elements at once with tensors of indices, masks in place of `if`; `.tolist()` once, before the loop, for numbers
that are only read.

Estimate: the step without the loop. The share is uncertain by one and a half standard errors of the samples, and at worst a
quarter of it remains.

False alarms: below 8 % of the step the rule stays silent. A recursion whose next element needs the last one (a dynamic program) can
only go through all samples of the batch at once. Data sets and evaluations are not counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ELEMENTS_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap")
_LEFT_WORST = 0.25  # of the loop, at worst


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, loops = "computes in loops over elements of tensors", a.element_lines
    found = own_code(RULE.id, a, STEP_ELEMENTS_S, loops, least=t["computing"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Python loop over tensor elements: {loops[0].function}",
        fix=Fix(
            "vectorize the loop with index tensors and masks",
            "x[rows, columns] = values; torch.where(mask, a, b); numbers that are only read: x.tolist(), once before the loop",
            found.where,
            "small change",
        ),
        saving=saving_without(a, found, "a few operations on whole tensors", left=_LEFT_WORST, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "Python loop over tensor elements",
    check,
    needs=(STEP_TIME_S, STEP_ELEMENTS_S),
    thresholds={
        "computing": Threshold(0.08, "of the step: loops over a few boxes or sequences are part of many losses")
    },
)
