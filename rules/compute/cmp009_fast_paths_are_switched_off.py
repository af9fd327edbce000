"""Fast paths are switched off.

What it does: finds switches that cost speed as they stand: TF32 off in single precision, cudnn.benchmark off with pictures of one size, an
optimizer that is not fused and takes its time.

Why it is slow: without TF32 single precision goes around the tensor cores; without benchmark cuDNN takes the algorithm that it guesses to
be good; an optimizer that is not fused launches several kernels for each group of parameters.

Evidence: the switches as they stood while the model ran; sizes of batches and pictures; what the optimizer takes of the step.

Fix: switch it on, one line each.

Estimate: none. Measure it: a run with and a run without, and `rn50-advisor compare`.

False alarms: pictures or batches of changing sizes make benchmark search anew each time: then it is rightly off. Nor is anything said of it
where the job asks for deterministic algorithms. Of a fused form nothing is said where the job's torch has none for that optimizer.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import (
    ALLOW_TF32,
    AMPERE,
    computing_s,
    convolves,
    facts_of,
    fused_form,
    part_of,
)
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_seen
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

Switch = tuple[str, Evidence, Fix]
Look = Switch | str | None  # what is off; what it would take to know, and nobody saw; nothing to say


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    rank = min(a.by_rank("precision.capability"))
    step = a.value("step.time_s")
    computing = common({r: computing_s(a, r) for r in model_of(a).own}) >= t["compute"] * step
    looks = (_tf32(a, rank, computing), _benchmark(a, rank, t, computing), _optimizer(a, rank, t))
    found = [look for look in looks if isinstance(look, tuple)]
    if not found:
        return clear_if_seen(RULE.id, *(look for look in looks if isinstance(look, str)))
    return Finding(
        rule=RULE.id,
        title=f"Switched off: {', '.join(name for name, _, _ in found)}",
        severity="low",
        confidence=confidence(a, cap=0.7),
        seconds_per_step=0.0,
        evidence=tuple(evidence for _, evidence, _ in found),
        fixes=tuple(fix for _, _, fix in found),
    )


def _tf32(a: Analysis, rank: int, computing: bool) -> Look:
    half, tf32 = a.get("precision.half", rank), a.get("precision.tf32", rank)
    if half or tf32 or not computing or a.value("precision.capability", rank) < AMPERE:
        return None
    if half is None or tf32 is None:
        return "precision.half" if half is None else "precision.tf32"
    return (
        "TF32",
        Evidence("precision.tf32", 0.0, "", None, "layers compute in float32, on a GPU that has TF32"),
        Fix("allow TF32, or better: autocast", ALLOW_TF32, None, "one line"),
    )


def _benchmark(a: Analysis, rank: int, t: Thresholds, computing: bool) -> Look:
    told = facts_of(a, rank)
    cuda, conv = part_of(told, "cuda"), part_of(told, "conv")
    benchmark, share = cuda.get("cudnn_benchmark"), a.get("batch.usual_share", rank)
    right = benchmark or cuda.get("cudnn_deterministic") or told.get("deterministic") or conv.get("varies")
    if right or not computing or convolves(told) is False or (share is not None and share < t["fixed"]):
        return None
    if benchmark is None or not conv or share is None:
        return "cudnn.benchmark" if benchmark is None else "batch.usual_share" if conv else "conv"
    note = f"convolutions over {conv.get('shape')} in {100 * share:.0f} % of the steps"
    return (
        "cudnn.benchmark",
        Evidence("cudnn.benchmark", "off", "", None, note),
        Fix(
            "let cuDNN look for its fastest algorithms once", "torch.backends.cudnn.benchmark = True", None, "one line"
        ),
    )


def _optimizer(a: Analysis, rank: int, t: Thresholds) -> Look:
    optimizer, own = part_of(facts_of(a, rank), "optimizer"), model_of(a).own
    step, spent = a.value("step.time_s"), common({r: own[r]["optimizer"] for r in own})
    if spent < t["optimizer"] * step:
        return None
    if "class" not in optimizer:
        return "optimizer"
    name = fused_form(a, rank)
    if not name:
        return None
    return (
        "fused optimizer",
        Evidence(
            "optimizer", spent, "s", t["optimizer"] * step, f"{name}, not fused: {100 * spent / step:.0f} % of the step"
        ),
        Fix(f"{name} in its fused form", f"{name}(..., fused=True)", None, "one line"),
    )


RULE = rule(
    __name__,
    "fast paths are switched off",
    check,
    needs=("step.time_s", "precision.capability"),
    explains=("CMP008",),
    thresholds={
        "compute": Threshold(0.20, "of the step, by the GPU's own pace: less of it gains too little"),
        "optimizer": Threshold(0.05, "of the step: a fused one still has to read and write each parameter"),
        "fixed": Threshold(0.95, "of the steps have batches of one size: the last one of each epoch may be smaller"),
    },
)
