"""Unnecessary activation checkpointing.

What it does: finds activation checkpointing (`torch.utils.checkpoint`, `gradient_checkpointing=True`) in jobs on CPUs
whose host has memory left.

Fires when: ≥ 8 % of the step is spent in forward passes inside the backward pass, and ≥ 30 % of the host's memory and of
the job's limit are free.

Why it is slow: a checkpointed part keeps no activations; the backward pass computes its forward pass a second time. That
saves memory, and costs a third more computing if the whole model is checkpointed.

Evidence: stack samples of the training thread; free memory; the line that asks for checkpointing.

Fix: checkpoint fewer layers, or none, as far as the memory allows. Activations then stay until the backward pass:
watch the memory in the first steps.

Estimate: at best the second forward pass goes away, at worst half of it: memory that is filled and read again also has
a cost.

False alarms: checkpointing that another machine needs, or longer inputs that come later. On a GPU the rule stays
silent: the samples do not show the thread in which autograd computes there.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import long_backward
from rn50_advisor.advisor.model.job_changes import Invocation, Setup
from rn50_advisor.advisor.model.measures.host_measures import MEMORY_HOST_LEFT_SHARE, MEMORY_LIMIT_USED_SHARE
from rn50_advisor.advisor.model.measures.step_measures import STEP_RECOMPUTING_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_STAYS_AT_WORST = 0.5  # of the second forward pass
_LINE_SAMPLES_MIN = 10
# Only to find the line that switches it on in a library's model.
_DISABLED = Setup((Invocation("gradient_checkpointing_disable"),))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    model, step = model_of(a), a.value(STEP_TIME_S)
    again = a.by_rank(STEP_RECOMPUTING_S)
    if not a.on_gpu and any(rank not in again and _is_long(own, t["again"] * step) for rank, own in model.own.items()):
        return NotMeasured(RULE.id, (STEP_RECOMPUTING_S,))
    spent = common({rank: again.get(rank, 0.0) for rank in model.own})
    level = severity(spent / step)
    if spent < t["again"] * step or level is None:
        return Clear(RULE.id)
    left = a.get(MEMORY_HOST_LEFT_SHARE)
    if left is None:
        return NotMeasured(RULE.id, (MEMORY_HOST_LEFT_SHARE,))
    free = min([left, *(1.0 - used for used in a.by_rank(MEMORY_LIMIT_USED_SHARE).values())])
    if free < t["free"]:
        return Clear(RULE.id)
    best, worst = (_step_without(a, part) for part in (1.0, 1.0 - _STAYS_AT_WORST))
    line = next((line for line in a.recomputing_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    return Finding(
        rule=RULE.id,
        title="Activation checkpointing although memory is free",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=spent,
        evidence=(
            Evidence.of(
                STEP_RECOMPUTING_S,
                spent,
                t["again"] * step,
                "of the backward pass recomputes checkpointed layers",
                form="continues",
            ),
            Evidence.of(
                MEMORY_HOST_LEFT_SHARE,
                free,
                t["free"],
                f"{100 * free:.0f} % of the job's memory is free",
            ),
        ),
        fixes=(
            Fix(
                "checkpoint fewer layers, or none",
                "gradient_checkpointing=False, or the layer itself instead of checkpoint(layer, ...); watch the memory",
                Where(line.file, line.line) if line else None,
                "small change",
                call=_DISABLED,
            ),
        ),
        saving=model.saving(best, worst, "activations stored instead of recomputed"),
    )


def _is_long(own: Mapping[str, float], least_s: float) -> bool:
    """The backward pass is longer than its forward pass suggests: it may contain a second one."""
    return long_backward(own["forward"], own["backward"]) >= least_s


def _step_without(a: Analysis, part: float) -> float:
    """The step without this part of the second forward pass."""
    model = model_of(a)
    return model.step_if(
        {
            (rank, "backward"): max(0.0, model.own[rank]["backward"] - part * seconds)
            for rank, seconds in a.by_rank(STEP_RECOMPUTING_S).items()
            if rank in model.own
        }
    )


RULE = rule(
    __name__,
    "Unnecessary activation checkpointing",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "again": Threshold(0.08, "of the step: stack samples of smaller shares scatter by a third"),
        "free": Threshold(0.3, "of the memory: how much checkpointing saves is unknown while it is on"),
    },
)
