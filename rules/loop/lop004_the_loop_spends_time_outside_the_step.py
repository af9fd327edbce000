"""Time between steps.

What it does: finds loops that spend a noticeable share of the step between the optimizer and the next fetch, or between
the backward pass and the optimizer, on something other than evaluation, checkpoints or output, and names the line.

Fires when: time between steps is ≥ 5 % of the step and ≥ 0.2 ms; names the line of code.

Why it is slow: nothing is computed and nothing is fetched meanwhile.

Evidence: time between steps; the line of user code that stack samples found there most often.

Fix: move that line out of the loop, run it every N steps, or in the background. Where it is in a Python loop over the
model's tensors (an average of the weights, norms): all of them at once and in place, as `torch._foreach_lerp_` does.

Estimate: at best none of the time between steps remains and the caches stay warm; if one rank kept the others waiting,
all ranks then wait equally long for cores. At worst a quarter of it remains. Of a loop over tensors on a CPU remains what
averages of four models took all at once, measured on one and two threads. If most of it came only once, no gain is certain.

False alarms: the learning-rate schedule and the metrics of a very short step; below 5 % or a fifth of a millisecond the
rule stays silent. Clipping, unscaling and averaging gradients over ranks must happen between backward and optimizer and
are not counted, whether by hand or not. Waiting there for a GPU that is still working is not counted either.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Affected, Clear, Finding, Saving, Where
from rn50_advisor.advisor.model.measures.step_measures import GAP_IO_SHARE, GAP_SAVE_SHARE, STEP_GAP_S, STEP_TIME_S
from rn50_advisor.rules.loop.between_steps import (
    gap_evidence,
    gap_fix,
    gap_place,
    gap_saving,
    gap_severity,
    hottest,
    longest_gap,
    on_ranks,
    ranks_that_spend,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

# What `_foreach_lerp_` left of the time of an average of the weights on a CPU, (at best, at worst). Measured with torch 2.14 on one and
# two threads, for ResNet-18, MobileNetV3, a perceptron and a transformer of six layers: 0.19 to 0.43 of loops that make new tensors, 0.46
# to 0.95 of loops that work in place (`mul_` and `add_` at most 0.76, `lerp_` at least 0.71).
_LEFT_AT_ONCE = {"new": (0.19, 0.43), "in place": (0.45, 0.95)}
_AT_ONCE = "torch._foreach_lerp_(averages, weights, 1 - decay); also _foreach_mul_, _foreach_add_, _foreach_norm, _foreach_copy_"


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical["gap"], a.value(STEP_TIME_S)
    level = gap_severity(a, spent / step)
    if spent < max(t["gap"] * step, t["seconds"]) or _reported_by_others(a) >= t["output"] or level is None:
        return Clear(RULE.id)
    if a.meta.traced and longest_gap(a) is not None:  # a few steps do not show whether it recurs
        return Clear(RULE.id)
    line, where = hottest(a, output=False)
    called_at = f"the loop calls it at {line.called_at}" if line is not None and line.called_at else ""
    at_once = line is not None and bool(line.each_tensor)
    if line is not None and _computes_the_model(line):
        file, _, number = line.called_at.rpartition(":")
        where, called_at = Where(file, int(number)), ""
    whose = ranks_that_spend(a, "gap")
    return Finding(
        rule=RULE.id,
        title=f"Time lost {gap_place(a)}" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a, cap=0.95 if line else 0.7),
        seconds_per_step=spent,
        evidence=gap_evidence(a, spent, t["gap"], line),
        fixes=(gap_fix(a, _advice(line), where, "small change", change=_AT_ONCE if at_once else called_at),),
        saving=_saving(a, line),
    )


def _advice(line: HotLine | None) -> str:
    if line is None:
        return "profile what the loop does after optimizer.step()"
    if _computes_the_model(line):
        return "run what this line calls every N steps, or on fewer samples"
    name = line.function if line.called_at else "this line"  # else the function may be the one that trains
    if line.each_tensor:
        return f"process all tensors at once and in place in {name}, or run it every N steps"
    return f"move {name} out of the loop, or run it every N steps"


def _computes_the_model(line: HotLine) -> bool:
    """True for samples drawn from a model, or a validation without a loader: the model is needed, and the loop calls it too often."""
    return bool(line.called_at) and line.function.rpartition(".")[2] == "forward"


def _saving(a: Analysis, line: HotLine | None) -> Saving:
    """The gain. Loops over tensors were not measured on GPUs: there they count as any other line."""
    if line is None or not line.each_tensor or a.on_gpu:
        return gap_saving(a, "running it every tenth step")
    share = min(1.0, sum(other.share for other in a.hot_lines if other.each_tensor))
    best, worst = (1.0 - share * (1.0 - left) for left in _LEFT_AT_ONCE[line.each_tensor])
    return gap_saving(a, "all tensors at once and in place", (best, worst))


def _reported_by_others(a: Analysis) -> float:
    """Share of the time between steps that is output or a checkpoint, whichever is more."""
    return max(a.get(GAP_IO_SHARE) or 0.0, a.get(GAP_SAVE_SHARE) or 0.0)


RULE = rule(
    __name__,
    "Time between steps",
    check,
    needs=(STEP_TIME_S, STEP_GAP_S),
    thresholds={
        "gap": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "seconds": Threshold(
            0.0002,
            "s: a schedule, an accuracy and a sum of losses took 0.06 ms a step; cores may be slower, loops have more metrics",
        ),
        "output": Threshold(0.5, "from here on LOP002 or LOP001 reports it"),
    },
    traced=True,
)
