"""Fast paths are switched off.

What it does: finds switches that cost speed as they stand: TF32 off in single precision, cudnn.benchmark off with pictures of one size, an
optimizer that is not fused and takes its time.

Why it is slow: without TF32 single precision goes around the tensor cores; without benchmark cuDNN takes the algorithm that it guesses to
be good; an optimizer that is not fused launches several kernels for each group of parameters.

Evidence: the switches as they stood while the model ran; sizes of batches and pictures; what the optimizer takes of the step.

Fix: switch it on, one line each.

Estimate: none. Measure it: a run with and a run without, and `rn50-advisor compare`.

False alarms: pictures or batches of changing sizes make benchmark search anew each time: then it is rightly off. Nor is anything said of it
where the job asks for deterministic algorithms.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.computing import ALLOW_TF32, AMPERE, computing_s, facts_of, part_of
from rules.reading import common, model_of
from rules.rule import Threshold, Thresholds, confidence, rule

_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")  # those of torch.optim that have a fused form

Switch = tuple[str, Evidence, Fix]


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    rank = min(a.by_rank("precision.capability"))
    step = a.value("step.time_s")
    computing = common({r: computing_s(a, r) for r in model_of(a).own}) >= t["compute"] * step
    found = [
        switch
        for switch in (_tf32(a, rank, computing), _benchmark(a, rank, t, computing), _optimizer(a, rank, t))
        if switch
    ]
    if not found:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Switched off: {', '.join(name for name, _, _ in found)}",
        severity="low",
        confidence=confidence(a, cap=0.7),
        seconds_per_step=0.0,
        evidence=tuple(evidence for _, evidence, _ in found),
        fixes=tuple(fix for _, _, fix in found),
    )


def _tf32(a: Analysis, rank: int, computing: bool) -> Switch | None:
    off = a.get("precision.half", rank) == 0.0 and a.get("precision.tf32", rank) == 0.0
    if not off or not computing or a.value("precision.capability", rank) < AMPERE:
        return None
    return (
        "TF32",
        Evidence("precision.tf32", 0.0, "", None, "layers compute in float32, on a GPU that has TF32"),
        Fix("allow TF32, or better: autocast", ALLOW_TF32, None, "one line"),
    )


def _benchmark(a: Analysis, rank: int, t: Thresholds, computing: bool) -> Switch | None:
    told = facts_of(a, rank)
    cuda, conv = part_of(told, "cuda"), part_of(told, "conv")
    searched = cuda.get("cudnn_benchmark") is not False or cuda.get("cudnn_deterministic") or told.get("deterministic")
    share = a.get("batch.usual_share", rank)
    if searched or not conv or conv.get("varies") or not computing or share is None or share < t["fixed"]:
        return None
    note = f"convolutions over {conv.get('shape')} in {100 * share:.0f} % of the steps"
    return (
        "cudnn.benchmark",
        Evidence("cudnn.benchmark", "off", "", None, note),
        Fix(
            "let cuDNN look for its fastest algorithms once", "torch.backends.cudnn.benchmark = True", None, "one line"
        ),
    )


def _optimizer(a: Analysis, rank: int, t: Thresholds) -> Switch | None:
    optimizer, own = part_of(facts_of(a, rank), "optimizer"), model_of(a).own
    step, spent = a.value("step.time_s"), common({r: own[r]["optimizer"] for r in own})
    if optimizer.get("fused") or optimizer.get("class") not in _FUSED or spent < t["optimizer"] * step:
        return None
    name = str(optimizer["class"])
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
