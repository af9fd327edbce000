"""Half precision emulated on the CPU.

What it does: finds models that compute in float16 or bfloat16 on a CPU that has no instructions for it.

Fires when: layers compute in a half precision on the CPU, by autocast or by their weights, the processor has no instructions for
this one, and forward, backward and optimizer take ≥ 20 % of the step.

Why it is slow: torch then converts each number, and has no optimized kernels for the format: convolutions and matrix products take
its plainest loops. Scripts written for a GPU keep `torch.autocast(device, torch.float16)` where they fall back to the CPU. Few
processors compute in float16 (AVX512-FP16, AMX-FP16); with AVX512 of any kind torch computes in bfloat16 nearly as fast as in single
precision. What Arm's formats and AVX-NE-CONVERT bring was not measured: they count as instructions.

Evidence: the format in autocast or in the weights when the layers ran; the instructions that the processor reports; the time of
forward, backward and optimizer.

Fix: single precision, `torch.autocast(..., enabled=device == "cuda")`, weights in `torch.float32`; in trainers `fp16=False`. On
processors with instructions for bfloat16 that format instead, which is often faster than single precision.

Estimate: forward, backward and optimizer take 4 to 30 % of their time in single precision, 2 to 20 % in bfloat16 where the
processor knows it. (Small nets and single precision after each other, torch 2.14, two threads, other programs beside them. float16:
convolutions 14 to 39 times as slow, perceptrons 2.5 to 24, a transformer 1.7 to 15, LSTMs 7 to 143; bfloat16 with no more than AVX2:
22 to 47, 2.4 to 3, 8, 34; with AVX512 0.8 to 1.4, but 3.7 and 5.3 in two of eight; with instructions of its own 0.1 to 1.)

False alarms: none are known. On a GPU that emulates bfloat16, CMP022 speaks.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.pace_measures import PRECISION_BF16, PRECISION_HALF
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import compute_phases_s, step_computing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the time that computing takes in single precision, and in bfloat16 where the processor knows it, at best and at worst.
_IN_SINGLE, _IN_BFLOAT16 = (0.04, 0.3), (0.02, 0.2)
_BRAIN, _HALF = "bfloat16", "float16"


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    half, brain, fast = a.by_rank(PRECISION_HALF), a.by_rank(PRECISION_BF16), a.meta.environment.get("fast_half")
    if a.on_gpu or (half and not any(half.values())):
        return Clear(RULE.id)
    if not half:
        return NotMeasured(RULE.id, (PRECISION_HALF,))
    if fast is None:
        return NotMeasured(RULE.id, ("instructions of the processor",))
    formats = {rank: _BRAIN if brain.get(rank) else _HALF for rank, computes in half.items() if computes}
    slow = {rank: name for rank, name in formats.items() if name not in fast}
    spent, step = compute_phases_s(a), a.value(STEP_TIME_S)
    best, worst = (step_computing(a, share, slow) for share in (_IN_BFLOAT16 if _BRAIN in fast else _IN_SINGLE))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if not slow or spent < t["compute"] * step or level is None:
        return Clear(RULE.id)
    names = " and ".join(sorted(set(slow.values())))
    return Finding(
        rule=RULE.id,
        title=f"Half precision emulated on the CPU: {names}",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(slow) == len(model_of(a).own) else tuple(sorted(slow))),
        evidence=(
            Evidence.of(
                PRECISION_HALF, 1.0, note=f"layers compute in {names}, for which this processor has no instructions"
            ),
            Evidence(
                "computing",
                spent,
                "s",
                t["compute"] * step,
                f"of a {duration(step)} step in forward, backward and optimizer",
                "continues",
            ),
        ),
        fixes=(_fix(bfloat16=_BRAIN in fast),),
        saving=model_of(a).saving(best, worst, "computing in a format that this processor knows"),
    )


def _fix(*, bfloat16: bool) -> Fix:
    single = 'torch.autocast(device, dtype, enabled=device == "cuda"), weights in torch.float32; in trainers fp16=False'
    if bfloat16:
        return Fix(
            "bfloat16 or single precision on the CPU",
            f"torch.autocast(device, torch.bfloat16), or {single}",
            None,
            "one line",
        )
    return Fix("single precision on the CPU", single, None, "one line")


RULE = rule(
    __name__,
    "Half precision emulated on the CPU",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"compute": Threshold(0.2, "of the step: below it, two runs differ by more than what could be gained")},
)
