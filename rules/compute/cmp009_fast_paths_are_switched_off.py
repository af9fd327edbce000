"""Fast paths switched off.

What it does: finds switches whose setting costs speed: TF32 off in single precision, cudnn.benchmark off with images of
one size, an optimizer that is not fused and takes a noticeable share of the step.

Fires when: TF32, `cudnn.benchmark` or a fused optimizer is off although the job's torch has it and it would matter.

Why it is slow: without TF32, single precision does not use the tensor cores; without benchmark, cuDNN chooses an
algorithm by heuristics instead of measuring; an optimizer that is not fused launches several kernels for each parameter
group.

Evidence: the switches as they were while the model ran; sizes of batches and images; the optimizer's share of the step.

Fix: switch it on, one line each.

Estimate: none. Measure it: a run with and a run without, and `rn50-advisor compare`.

False alarms: with images or batches of changing sizes, benchmark searches again each time: then it is off for a reason.
The rule also stays silent about it if the job asks for deterministic algorithms, and about the fused form if the job's
torch has none for that optimizer.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import Assignment, CallChange, Setup
from rn50_advisor.advisor.model.measures.input_measures import BATCH_USUAL_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import PRECISION_CAPABILITY, PRECISION_HALF, PRECISION_TF32
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.model_documents import LayerFacts, OptimizerFacts
from rn50_advisor.probes.documents.rank_documents import CudaFacts
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import (
    ALLOW_TF32,
    AMPERE,
    computing_s,
    convolves,
    facts_of,
    fused_form,
)
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_measured
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

Switch = tuple[str, Evidence, Fix]
Inspection = Switch | str | None  # a switch that is off; the value that was not measured; nothing to report
_BENCHMARK = Setup((Assignment("torch.backends.cudnn.benchmark", True),))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    rank = min(a.by_rank(PRECISION_CAPABILITY))
    step = a.value(STEP_TIME_S)
    computing = common({r: computing_s(a, r) for r in model_of(a).own}) >= t["compute"] * step
    inspections = (_tf32(a, rank, computing), _benchmark(a, rank, t, computing), _optimizer(a, rank, t))
    found = [one for one in inspections if isinstance(one, tuple)]
    if not found:
        return clear_if_measured(RULE.id, *(one for one in inspections if isinstance(one, str)))
    return Finding(
        rule=RULE.id,
        title=f"Fast paths switched off: {', '.join(name for name, _, _ in found)}",
        severity="low",
        confidence=confidence(a, cap=0.7),
        seconds_per_step=0.0,
        evidence=tuple(evidence for _, evidence, _ in found),
        fixes=tuple(fix for _, _, fix in found),
    )


def _tf32(a: Analysis, rank: int, computing: bool) -> Inspection:
    half, tf32 = a.get(PRECISION_HALF, rank), a.get(PRECISION_TF32, rank)
    if half or tf32 or not computing or a.value(PRECISION_CAPABILITY, rank) < AMPERE:
        return None
    if half is None or tf32 is None:
        return PRECISION_HALF if half is None else PRECISION_TF32
    return (
        "TF32",
        Evidence.of(PRECISION_TF32, 0.0, note="layers compute in float32, on a GPU that has TF32"),
        Fix.of("allow TF32, or better: autocast", ALLOW_TF32, None, "one line"),
    )


def _benchmark(a: Analysis, rank: int, t: Thresholds, computing: bool) -> Inspection:
    facts = facts_of(a, rank)
    cuda, conv = facts.get("cuda") or CudaFacts(), facts.get("conv", LayerFacts())
    benchmark, share = cuda.get("cudnn_benchmark"), a.get(BATCH_USUAL_SHARE, rank)
    intended = benchmark or cuda.get("cudnn_deterministic") or facts.get("deterministic") or conv.get("varies")
    if intended or not computing or convolves(facts) is False or (share is not None and share < t["fixed"]):
        return None
    if benchmark is None or not conv or share is None:
        return "cudnn.benchmark" if benchmark is None else BATCH_USUAL_SHARE if conv else "conv"
    note = f"convolutions over {conv.get('shape')} in {100 * share:.0f} % of the steps"
    return (
        "cudnn.benchmark",
        Evidence("cudnn.benchmark", "off", "", None, note),
        Fix.of("let cuDNN benchmark its algorithms once", _BENCHMARK, None, "one line"),
    )


def _optimizer(a: Analysis, rank: int, t: Thresholds) -> Inspection:
    optimizer, own = facts_of(a, rank).get("optimizer", OptimizerFacts()), model_of(a).own
    step, spent = a.value(STEP_TIME_S), common({r: own[r]["optimizer"] for r in own})
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
        Fix.of(f"{name} in its fused form", CallChange.of(name, fused=True), None, "one line"),
    )


RULE = rule(
    __name__,
    "Fast paths switched off",
    check,
    severities=("low",),
    needs=(STEP_TIME_S, PRECISION_CAPABILITY),
    thresholds={
        "compute": Threshold(0.20, "of the step in which the GPU sets the pace: below it the gain is too small"),
        "optimizer": Threshold(0.05, "of the step: a fused one still has to read and write each parameter"),
        "fixed": Threshold(0.95, "of the steps have batches of one size: the last batch of each epoch may be smaller"),
    },
)
