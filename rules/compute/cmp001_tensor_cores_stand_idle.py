"""Tensor Cores idle.

What it does: finds models that compute in single precision without TF32 on a GPU that has tensor cores.

Fires when: single precision without TF32, and tensor cores could do ≥ 20 % of the step.

Why it is slow: tensor cores multiply matrices 8 to 16 times as fast as the other cores, but only in half precision or
TF32.

Evidence: neither autocast nor half-precision weights when the first layers ran; TF32 off for most of the model's
computing (convolutions or matrix products); the share of the step in which the GPU, not the host, sets the pace. A
profiler window (`--deep`) shows it from the kernels themselves, excluding those of attention, which use tensor cores in
single precision whatever the switches say.

Fix: `torch.autocast` with bfloat16, or with float16 and a GradScaler on GPUs before Ampere; TF32 if single precision
must stay.

Estimate: forward and backward take 1/1.5 to 1/3.3 of their time, as ResNet50 does on V100 and A100. A trial measures it
for this model.

False alarms: TF32 is on (torch's default for convolutions); a Turing board without tensor cores (GTX 16). A GPU that
waits for the host gains nothing from faster kernels, so such time is not counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import Expression, ForwardContext, Invocation
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_ELIGIBLE_SHARE, KERNEL_TENSOR_CORE_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import PRECISION_CAPABILITY, PRECISION_HALF, PRECISION_TF32
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import (
    ALLOW_TF32,
    AMPERE,
    computing_s,
    has_tensor_cores,
    if_computed_faster,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# ResNet50, batch 256: TF32 on A100 to AMP there 1.57, single precision on V100 to AMP there 2.1, with channels-last 3.3.
_GAIN = (1.5, 3.3)
_BY_LAYERS = "no autocast around the layers, weights and inputs in float32, TF32 off"
_BY_KERNELS = "most convolutions and matrix products run in kernels for float32, without TF32"


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    half, tf32, capability = map(a.by_rank, (PRECISION_HALF, PRECISION_TF32, PRECISION_CAPABILITY))
    plain = [
        rank
        for rank in half
        if not half[rank] and not tf32.get(rank, 0.0) and capability.get(rank, 0.0) >= t["capability"]
    ]
    if not plain or len(plain) < len(half) or any(not has_tensor_cores(a, rank) for rank in plain):
        return Clear(RULE.id)
    step, tensor = a.value(STEP_TIME_S), a.by_rank(KERNEL_TENSOR_CORE_SHARE)
    eligible = {rank: computing_s(a, rank) * _eligible(a, rank) for rank in plain}
    if common(eligible) < t["eligible"] * step or any(share >= t["tensor"] for share in tensor.values()):
        return Clear(RULE.id)
    least = if_computed_faster(a, _scaled(a, plain, _GAIN[0]), hopeful=False)
    most = if_computed_faster(a, _scaled(a, plain, _GAIN[1]), hopeful=True)
    level = severity((step - least) / step)
    if level is None:
        return Clear(RULE.id)
    expected = (least + most) / 2
    newest = min(capability.values())
    return Finding(
        rule=RULE.id,
        title="Tensor Cores idle: FP32 compute without TF32",
        severity=level,
        confidence=confidence(a, cap=0.95 if tensor else 0.85),
        seconds_per_step=step - expected,
        evidence=(
            Evidence.of(PRECISION_HALF, 0.0, note=_BY_KERNELS if a.meta.traced else _BY_LAYERS),
            Evidence(
                "eligible compute",
                common(eligible),
                "s",
                t["eligible"] * step,
                f"{100 * common(eligible) / step:.0f} % of a {duration(step)} step, on a GPU of compute capability {newest:.1f}",
            ),
            *_by_kernels(tensor, t),
        ),
        fixes=_fixes(newest),
        saving=model_of(a).saving(
            most,
            least,
            f"layers {_GAIN[0]:g} to {_GAIN[1]:g} times as fast, as ResNet50 on V100 and A100; a trial measures it",
        ),
    )


def _eligible(a: Analysis, rank: int) -> float:
    """Convolutions and matrix products as a share of kernel time; 1 without a profiler window."""
    share = a.get(KERNEL_ELIGIBLE_SHARE, rank)
    return 1.0 if share is None else share


def _scaled(a: Analysis, ranks: list[int], gain: float) -> dict[int, float]:
    return {rank: 1.0 - _eligible(a, rank) * (1.0 - 1.0 / gain) for rank in ranks}


def _by_kernels(tensor: dict[int, float], t: Thresholds) -> tuple[Evidence, ...]:
    if not tensor:
        return ()
    share = max(tensor.values())
    return (
        Evidence.of(
            KERNEL_TENSOR_CORE_SHARE,
            share,
            t["tensor"],
            "of convolutions and matrix products, in the profiler's window",
            form="continues",
        ),
    )


def _fixes(capability: float) -> tuple[Fix, ...]:
    if capability < AMPERE:
        amp = 'with torch.autocast("cuda", torch.float16): loss = ...; scaler = torch.amp.GradScaler(); scaler.scale(loss).backward()'
        return (Fix("compute under autocast, with a gradient scaler", amp, None, "small change"),)
    half = ForwardContext(Invocation("torch.autocast", ("cuda", Expression("torch.bfloat16"))))
    return (
        Fix.of("compute under autocast in bfloat16", half, None, "small change"),
        Fix.of("or allow TF32 if single precision must stay", ALLOW_TF32, None, "one line"),
    )


RULE = rule(
    __name__,
    "Tensor Cores idle",
    check,
    needs=(STEP_TIME_S, PRECISION_HALF, PRECISION_TF32, PRECISION_CAPABILITY),
    thresholds={
        "capability": Threshold(7.0, "Volta was the first with tensor cores"),
        "eligible": Threshold(
            0.20, "of the step: the threshold of TensorBoard's plugin; below it the gain is too small"
        ),
        "tensor": Threshold(
            0.05, "of the eligible kernels' time on tensor cores, by a profiler window: from there on they are in use"
        ),
    },
    traced=True,
)
