"""Parameter groups of the same settings.

What it does: finds optimizers on CPUs with many parameter groups of which most have the same settings, such as one for each tensor.

Fires when: there are ≥ 50 groups, four or more for each setting, and merging them would spare ≥ 5 % of the step.

Why it is slow: an optimizer goes through its groups one by one. For each it collects tensors and settings, and makes its own calls of
fused or foreach operations, which could have had the tensors of all groups of the same settings. Schedulers go through them, too.

Evidence: the number of groups, of their different settings and of the tensors; the time of `optimizer.step()`.

Fix: one group for each pair of learning rate and weight decay: collect the parameters in a dictionary by these values.

Estimate: the share of the optimizer's time that was left with merged groups, fused and not, both forms in turns.

False alarms: groups that a scheduler treats differently later have different settings only then.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted, duration
from rn50_advisor.probes.documents.model_documents import OptimizerFacts
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of, updating_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the optimizer's time that was left with one group for each of 2 to 24 settings, at best and at worst. 100 to 800 tensors of
# 32 x 32 to 512 x 512 on two threads, torch 2.14, both forms in turns: AdamW fused 0.38 to 0.72; AdamW and SGD one tensor after the other
# 0.63 to 0.84. With `foreach=True` small tensors left 0.35 to 0.48 and large ones 1.5: nothing is said about it.
_LEFT_FUSED, _LEFT = (0.38, 0.72), (0.63, 0.85)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    rank = min(model_of(a).own)
    optimizer = facts_of(a, rank).get("optimizer", OptimizerFacts())
    groups, settings = optimizer.get("groups"), optimizer.get("settings")
    if groups is None or settings is None:
        return NotMeasured(RULE.id, ("optimizer",))
    step, fused = a.value(STEP_TIME_S), bool(optimizer.get("fused"))
    if groups < t["groups"] or groups < t["alike"] * settings or optimizer.get("foreach"):
        return Clear(RULE.id)
    best, worst = (_with(a, left) for left in (_LEFT_FUSED if fused else _LEFT))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if lost < t["merging"] * step or level is None:
        return Clear(RULE.id)
    note = f"for {optimizer.get('parameters', 0)} tensors, with {counted(settings, 'different setting')}"
    made = Where(optimizer["file"], optimizer["line"]) if optimizer.get("file") and "line" in optimizer else None
    return Finding(
        rule=RULE.id,
        title=f"{groups} parameter groups with {counted(settings, 'different setting')}",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=(
            Evidence("parameter groups", float(groups), "", t["groups"], note),
            Evidence("optimizer", common(updating_s(a)), "s", None, f"of a {duration(step)} step", "continues"),
        ),
        fixes=(
            Fix(
                f"{counted(settings, 'group')}, one for each setting",
                "groups[lr, weight_decay].append(p) in a dictionary, then one {'params': ..., 'lr': ..., 'weight_decay': ...} for each",
                made,
                "small change",
            ),
        ),
        saving=model_of(a).saving(best, worst, "one group for each setting"),
    )


def _with(a: Analysis, left: float) -> float:
    """The step if this share of every rank's optimizer is left."""
    own, spent = model_of(a).own, updating_s(a)
    return model_of(a).step_if(
        {(rank, "optimizer"): own[rank]["optimizer"] - (1.0 - left) * spent[rank] for rank in own}
    )


RULE = rule(
    __name__,
    "Parameter groups of the same settings",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "merging": Threshold(0.05, "of the step: severity 'medium' begins there"),
        "groups": Threshold(50, "fewer than 100 were not measured"),
        "alike": Threshold(4.0, "groups for each setting: with fewer there is little to merge"),
    },
)
