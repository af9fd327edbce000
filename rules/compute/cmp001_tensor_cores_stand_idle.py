"""Tensor cores stand idle.

What it does: finds models that compute in single precision without TF32 on a GPU that has tensor cores.

Why it is slow: a tensor core multiplies matrices 8 to 16 times as fast as the other cores, and takes half-precision or TF32 numbers only.

Evidence: neither autocast nor half-precision weights where the first layers ran; TF32 off for what the model mostly computes (convolutions
or matrix products); the share of the step that the GPU computes at its own pace. A deep window tells it by the kernels themselves, without
those of attention: in single precision they use tensor cores whatever the switches say.

Fix: `torch.autocast` with bfloat16, on GPUs before Ampere with float16 and a GradScaler; TF32 where single precision must stay.

Estimate: forward and backward take 1/1.5 to 1/3.3 of their time: what ResNet50 gains on V100 and A100. A trial tells it of this model.

False alarms: TF32 is on (torch's default for convolutions); a Turing board without tensor cores (GTX 16); a GPU that waits for the host
gains nothing by faster kernels: such time is not counted.
"""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import ALLOW_TF32, AMPERE, computing_s, if_computed_faster
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# ResNet50, batch 256: TF32 on A100 to AMP there 1.57, single precision on V100 to AMP there 2.1, with channels-last 3.3.
_GAIN = (1.5, 3.3)
# Chips TU116 and TU117: Turing by their capability (7.5), and without tensor cores.
_WITHOUT = re.compile(r"GTX 16\d\d|MX[45]50|\bT(?:400|500|550|600|1000|1200|2000)\b")


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    half, tf32, capability = (a.by_rank(f"precision.{name}") for name in ("half", "tf32", "capability"))
    plain = [
        rank
        for rank in half
        if not half[rank] and not tf32.get(rank, 0.0) and capability.get(rank, 0.0) >= t["capability"]
    ]
    if not plain or len(plain) < len(half) or any(not _has_any(a, rank) for rank in plain):
        return Clear(RULE.id)
    step, tensor = a.value("step.time_s"), a.by_rank("kernel.tensor_core_share")
    eligible = {rank: computing_s(a, rank) * _eligible(a, rank) for rank in plain}
    if common(eligible) < t["eligible"] * step or any(share >= t["tensor"] for share in tensor.values()):
        return Clear(RULE.id)
    least = if_computed_faster(a, _scaled(a, plain, _GAIN[0]), hopeful=False)
    most = if_computed_faster(a, _scaled(a, plain, _GAIN[1]), hopeful=True)
    level = severity((step - least) / step)
    if level is None:
        return Clear(RULE.id)
    newest = min(capability.values())
    return Finding(
        rule=RULE.id,
        title="The GPU computes in single precision, its tensor cores stand idle",
        severity=level,
        confidence=confidence(a, cap=0.95 if tensor else 0.85),
        seconds_per_step=step - least,
        evidence=(
            Evidence(
                "precision.half",
                0.0,
                "",
                None,
                "no autocast around the layers, weights and inputs in float32, TF32 off",
            ),
            Evidence(
                "eligible compute",
                common(eligible),
                "s",
                t["eligible"] * step,
                f"{100 * common(eligible) / step:.0f} % of a {1000 * step:.0f} ms step, on a GPU of compute capability {newest:.1f}",
            ),
            *_by_kernels(tensor, t),
        ),
        fixes=_fixes(newest),
        saving=model_of(a).saving(
            most,
            least,
            f"layers {_GAIN[0]:g} to {_GAIN[1]:g} times as fast, as ResNet50 on V100 and A100; a trial tells",
        ),
    )


def _has_any(a: Analysis, rank: int) -> bool:
    """Boards are told by their names, where the driver names them."""
    return not any(rank in gpu.ranks and _WITHOUT.search(gpu.name) for gpu in a.gpu_view.used)


def _eligible(a: Analysis, rank: int) -> float:
    """Convolutions and matrix products, of what kernels take; all of it where nobody looked."""
    share = a.get("kernel.eligible_share", rank)
    return 1.0 if share is None else share


def _scaled(a: Analysis, ranks: list[int], gain: float) -> dict[int, float]:
    return {rank: 1.0 - _eligible(a, rank) * (1.0 - 1.0 / gain) for rank in ranks}


def _by_kernels(tensor: dict[int, float], t: Thresholds) -> tuple[Evidence, ...]:
    if not tensor:
        return ()
    share = max(tensor.values())
    return (
        Evidence(
            "kernel.tensor_core_share",
            share,
            "",
            t["tensor"],
            "of convolutions and matrix products, in the deep window",
        ),
    )


def _fixes(capability: float) -> tuple[Fix, ...]:
    if capability < AMPERE:
        amp = 'with torch.autocast("cuda", torch.float16): loss = ...; scaler = torch.amp.GradScaler(); scaler.scale(loss).backward()'
        return (Fix("compute under autocast, with a gradient scaler", amp, None, "small change"),)
    amp = 'with torch.autocast("cuda", torch.bfloat16): loss = ...'
    return (
        Fix("compute under autocast in bfloat16", amp, None, "small change"),
        Fix("or allow TF32 where single precision must stay", ALLOW_TF32, None, "one line"),
    )


RULE = rule(
    __name__,
    "tensor cores stand idle",
    check,
    needs=("step.time_s", "precision.half", "precision.tf32", "precision.capability"),
    explains=("CMP008", "CMP009"),
    thresholds={
        "capability": Threshold(7.0, "Volta was the first with tensor cores"),
        "eligible": Threshold(0.20, "of the step: as TensorBoard's plugin has it; less of it gains too little"),
        "tensor": Threshold(
            0.05, "of the eligible kernels' time on tensor cores, by a deep window: then they are in use"
        ),
    },
)
