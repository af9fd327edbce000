"""Emulated bfloat16.

What it does: finds models that compute in bfloat16 on a GPU that has no units for it.

Fires when: bfloat16 on a GPU before Ampere (compute capability < 8.0: V100, T4, RTX 20, P100), and ≥ 20 % of the step could gain.

Why it is slow: such a GPU converts to single precision for each operation; its tensor cores, if it has any, know float16 only.
torch does not warn: `torch.cuda.is_bf16_supported()` is true for emulation, too.

Evidence: bfloat16 in autocast or in the weights when the layers ran; the compute capability that CUDA reports; the share of
the step in which the GPU, not the host, sets the pace.

Fix: autocast in `torch.float16` with a GradScaler on GPUs with tensor cores (Volta, Turing); single precision on older ones.
In trainers `fp16=True` instead of `bf16=True`, or `precision="16-mixed"`.

Estimate: with tensor cores, forward and backward take 1/1.5 to 1/4.3 of their time. The one is what ResNet50 gains from
float16 over single precision on A100, the least of the published ratios; the other was measured for ModernBERT on a T4,
0.30 s in float16 instead of 1.29 s a batch (earino.github.io/applied-deep-learning, "Your T4 Training Is 4x Slower Than It
Should Be"). A trial measures it for this model. On GPUs without tensor cores no gain is known.

False alarms: models that overflow in float16, such as some that were trained in bfloat16: there, single precision is the
alternative. A GPU that waits for the host gains nothing from faster kernels, so such time is not counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_ELIGIBLE_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import PRECISION_BF16, PRECISION_CAPABILITY
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import AMPERE, computing_s, has_tensor_cores, if_computed_faster
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN = (1.5, 4.3)
_IN_HALF = 'torch.autocast("cuda", torch.float16), with scaler = torch.amp.GradScaler(): scaler.scale(loss).backward()'
_IN_SINGLE = "without autocast, weights in torch.float32"


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    brain, capability = a.by_rank(PRECISION_BF16), a.by_rank(PRECISION_CAPABILITY)
    if any(rank not in capability for rank in brain if brain[rank]):
        return NotMeasured(RULE.id, (PRECISION_CAPABILITY,))
    ranks = [rank for rank in brain if brain[rank] and capability[rank] < t["capability"]]
    if not ranks or len(ranks) < len(brain):
        return Clear(RULE.id)
    step = a.value(STEP_TIME_S)
    emulated = {rank: computing_s(a, rank) * _eligible(a, rank) for rank in ranks}
    if common(emulated) < t["eligible"] * step:
        return Clear(RULE.id)
    tensor = all(has_tensor_cores(a, rank) for rank in ranks)
    least, most = (
        if_computed_faster(a, {r: 1.0 - _eligible(a, r) * (1.0 - 1.0 / gain) for r in ranks}, hopeful=hopeful)
        for gain, hopeful in zip(_GAIN, (False, True), strict=True)
    )
    newest = max(capability[rank] for rank in ranks)
    return Finding(
        rule=RULE.id,
        title="Emulated bfloat16 on this GPU",
        severity=(severity((step - least) / step) or "low") if tensor else "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=step - least if tensor else 0.0,
        evidence=(
            Evidence.of(PRECISION_BF16, 1.0, note="layers compute in bfloat16, through autocast or their weights"),
            Evidence.of(
                PRECISION_CAPABILITY,
                newest,
                t["capability"],
                f"compute capability {newest:.1f}: native bfloat16 starts with {AMPERE:.1f}",
            ),
            Evidence(
                "emulated compute",
                common(emulated),
                "s",
                t["eligible"] * step,
                f"{100 * common(emulated) / step:.0f} % of a {duration(step)} step",
            ),
        ),
        fixes=(
            Fix("compute in float16, with a gradient scaler", _IN_HALF, None, "small change")
            if tensor
            else Fix("compute in single precision", _IN_SINGLE, None, "small change"),
        ),
        saving=model_of(a).saving(
            most, least, f"layers {_GAIN[0]:g} to {_GAIN[1]:g} times as fast in float16; a trial measures it"
        )
        if tensor
        else None,
    )


def _eligible(a: Analysis, rank: int) -> float:
    """Convolutions and matrix products as a share of kernel time; 1 without a profiler window."""
    share = a.get(KERNEL_ELIGIBLE_SHARE, rank)
    return 1.0 if share is None else share


RULE = rule(
    __name__,
    "Emulated bfloat16",
    check,
    needs=(STEP_TIME_S, PRECISION_BF16, PRECISION_CAPABILITY),
    thresholds={
        "capability": Threshold(AMPERE, "compute capability of Ampere, the first with units for bfloat16"),
        "eligible": Threshold(0.20, "of the step: below it the gain is too small, as for idle tensor cores"),
    },
    traced=True,
)
