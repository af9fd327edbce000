"""Unfused optimizer on the CPU.

What it does: finds training on CPUs whose optimizer takes a noticeable part of the step, although torch has a fused form
of it that the job does not use.

Fires when: ≥ 10 % of the step is spent in an Adam, AdamW or Adagrad on the CPU that is not fused.

Why it is slow: by default, an optimizer on the CPU updates one parameter after the other, with five to fifteen
operations for each. Every operation has its own cost, and reads and writes whole tensors in memory. The fused
form updates a parameter in one pass.

Evidence: the time of `optimizer.step()` in each step; the optimizer's class, its tensors and their elements.

Fix: `fused=True` in the call that creates the optimizer. The numbers stay the same up to rounding.

Estimate: the optimizer takes between 20 and 55 % of its time, as measured.

False alarms: an optimizer that waits for a core; that wait is left out. Sparse gradients have no fused form, and the
rule stays silent about them. SGD is left alone: it has few operations to merge, and gained nothing in most cases. An
optimizer that is compiled, or of another library, is not recognised.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration, number
from rn50_advisor.probes.documents.model_documents import OptimizerFacts
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of, fused_on_cpu, updating_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the optimizer's time that the fused form takes, at best and at worst. Measured on two cores with torch 2.14, from 200 tensors of
# 64 x 64 to one of 400,000 x 32 and those of ResNet50: 16 to 44 % with Adam, 17 to 34 % with AdamW, 17 to 46 % with Adagrad; within the
# steps of six trainings 23 to 53 %.
_LEFT_SHARE = (0.2, 0.55)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    own, step = model_of(a).own, a.value(STEP_TIME_S)
    spent = common(updating_s(a))
    if spent < t["optimizer"] * step or a.on_gpu:
        return Clear(RULE.id)
    rank = max(own, key=lambda rank: own[rank]["optimizer"])
    facts = facts_of(a, rank)
    optimizer = facts.get("optimizer", OptimizerFacts())
    name = optimizer.get("class")
    if name is None:
        return NotMeasured(RULE.id, ("optimizer",))
    if not fused_on_cpu(facts) or optimizer.get("sparse"):
        return Clear(RULE.id)
    best, worst = (_step_with(a, share) for share in _LEFT_SHARE)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    change = CallChange(name, (("fused", True),), without=("foreach",))
    return Finding(
        rule=RULE.id,
        title=f"Unfused {name} on the CPU",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence(
                "optimizer",
                spent,
                "s",
                t["optimizer"] * step,
                f"of a {duration(step)} step in {name}, which is not fused: {_size(optimizer)}",
                "continues",
            ),
        ),
        fixes=(Fix.of(f"{name} in its fused form", change, None, "one line"),),
        saving=model_of(a).saving(best, worst, "a fused optimizer"),
    )


def _step_with(a: Analysis, share: float) -> float:
    """The step if every rank's optimizer took this share of its time."""
    model = model_of(a)
    spared = {rank: (1.0 - share) * seconds for rank, seconds in updating_s(a).items()}
    return model.step_if({(rank, "optimizer"): own["optimizer"] - spared[rank] for rank, own in model.own.items()})


def _size(optimizer: OptimizerFacts) -> str:
    tensors, elements = optimizer.get("parameters", 0), optimizer.get("elements", 0)
    return f"{tensors} tensors" + (f", {number(elements)} elements" if elements else "")


RULE = rule(
    __name__,
    "Unfused optimizer on the CPU",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "optimizer": Threshold(0.10, "of the step: the fused form saves half of it and more, which is 5 % from here on")
    },
)
