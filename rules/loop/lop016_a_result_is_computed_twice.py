"""Results computed twice.

What it does: finds lines that compute what an earlier line of the same function has computed from the same values: the model
called once for the loss and once more for a metric, a matrix of distances or an encoder's output made for each of two uses.

Fires when: the second computation takes ≥ 5 % of the step.

Why it is slow: the second computation takes as long as the first; where its result has a backward pass of its own, that runs
twice as well.

Evidence: a profile of the training thread's stacks; the source of the function, in which both lines compute the same
expression. In between nothing that it uses is bound anew or changed, no update runs, and the model keeps its mode.

Fix: keep the first result and use it in both places, with `.detach()` where it must not be trained.

Estimate: the step without the second computation, at worst with a fifth of it: the rest of its line. If its result may have a
backward pass, two to one of its forward pass come off as well, at best. The share is uncertain by one and a half standard errors of the
samples.

False alarms: models with dropout, or whose source draws random numbers or changes the model in its forward pass, give another
result the second time, perhaps on purpose (R-Drop, SimCSE): nothing is said of them, and nothing where the first line
does not always run or a call in between may change the model (sharpness-aware minimization). Batch norm sees the
batch once instead of twice: its running averages move more slowly then.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_SECOND_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap", "optimizer", "backward")
_LEFT_WORST = (
    0.2  # three seeded jobs in turns became 1.25, 1.81 and 1.12 times as fast where 1.30, 1.84 and 1.15 were likely
)
_WITH_BACKWARD = 3.0  # at best: a backward pass as long as two forward passes comes off as well


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    seconds = a.second_computations
    lines, doing = [second.line for second in seconds], "computes what it has computed before"
    found = own_code(RULE.id, a, STEP_SECOND_S, lines, least=t["second"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    first = next(
        second for second in seconds if (second.line.file, second.line.line) == (found.where.file, found.where.line)
    )
    times = _WITH_BACKWARD if first.recorded else 1.0
    finding = finding_of(
        RULE.id,
        a,
        found,
        f"Result computed twice: {first.line.function}",
        fix=Fix(
            "compute it once, and use the result in both places",
            f"keep the result of line {first.earlier} and use it here"
            + ("" if first.recorded else ", with .detach() where it must not be trained"),
            found.where,
            "one line",
        ),
        saving=saving_without(
            a, found, "one computation instead of two", left=_LEFT_WORST, phases=_PHASES, times=times
        ),
    )
    same = Evidence("computed before", float(first.earlier), "", None, f"line {first.earlier} computes the same")
    return replace(finding, evidence=(*finding.evidence, same))


RULE = rule(
    __name__,
    "Results computed twice",
    check,
    needs=(STEP_TIME_S, STEP_SECOND_S),
    thresholds={"second": Threshold(0.05, "of the step: severity 'medium' begins at 5 %")},
)
