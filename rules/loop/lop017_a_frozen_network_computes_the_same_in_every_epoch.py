"""Frozen networks that compute the same in every epoch.

What it does: finds networks of which nothing learns (the encoder of a VAE, a text or image backbone in `eval()` mode) that run
in every training step on inputs that do not change from epoch to epoch.

Fires when: such calls take ≥ 5 % of the step on a CPU, and of the latest inputs at least 95 % were inputs of earlier calls.

Why it is slow: the same weights make the same outputs of the same inputs. Every epoch but the first computes what is known.

Evidence: numbers from all over the rows of the network's inputs, which are compared with those of earlier calls; there
are no more different ones than the data sets have samples. Its largest weights stay the same, all its parts are in `eval()` mode, and
it draws no random numbers. A profile of the training thread's stacks shows how long its calls take.

Fix: run it once for each sample, before training or in the first epoch; store its outputs in memory, or on disk as a data
set, and train on these. Of a VAE store mean and variance, and sample from them in each step. Random augmentation is not possible then:
store several variants of each sample, or leave it as it is, if you want to add it.

Estimate: the step without these calls, at worst with a fifth of them: stored outputs are loaded instead, and later epochs alone gain. The
share is uncertain by one and a half standard errors of the samples.

False alarms: a target network that is replaced once in many epochs, until then; outputs that fit neither into memory nor
on the disk. Nothing is said of networks whose inputs are augmented, padded to the longest of a batch that is drawn anew, or of a data set
of unknown length; of compiled networks; and before the second epoch.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_FROZEN_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap", "optimizer", "backward")
_LEFT_WORST = 0.2  # a seeded job in turns became 1.53 times as fast where 1.63 was likely


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    calls = a.frozen_calls
    lines, doing = [call.line for call in calls], "runs networks that do not learn on inputs of earlier epochs"
    found = own_code(RULE.id, a, STEP_FROZEN_S, lines, least=t["frozen"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    call = next(call for call in calls if (call.line.file, call.line.line) == (found.where.file, found.where.line))
    finding = finding_of(
        RULE.id,
        a,
        found,
        f"Frozen network computes the same in every epoch: {call.network}",
        fix=Fix(
            "compute its outputs once, and train on these",
            f"run {call.network} once for each sample, before training or in the first epoch; store the outputs in memory, or on disk as a "
            "data set, and load them in this line's place (of a VAE mean and variance, and sample from them in each step). "
            "Not if you want random augmentation",
            found.where,
            "small change",
        ),
        saving=saving_without(a, found, "stored outputs instead of the network", left=_LEFT_WORST, phases=_PHASES),
    )
    known = Evidence(
        "inputs of earlier epochs",
        call.seen / call.inputs,
        "share",
        0.95,
        f"{call.seen:,} of the latest {call.inputs:,} inputs that were compared; its weights did not change",
    )
    return replace(finding, evidence=(*finding.evidence, known))


RULE = rule(
    __name__,
    "Frozen networks that compute the same in every epoch",
    check,
    needs=(STEP_TIME_S, STEP_FROZEN_S),
    thresholds={"frozen": Threshold(0.05, "of the step: severity 'medium' begins at 5 %")},
)
