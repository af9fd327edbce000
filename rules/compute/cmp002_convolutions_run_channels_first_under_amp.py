"""Channels-first (NCHW) convolutions under AMP.

What it does: finds convolutional models in half precision whose images and weights are channels-first (NCHW).

Fires when: images and weights in NCHW, convolutions in half precision.

Why it is slow: cuDNN's tensor-core kernels need channels-last tensors. Otherwise tensors are transposed before and
after each convolution, or a slower kernel is used.

Evidence: the memory layout of the first convolution's input and weights while the model ran; half precision in
convolutions, not only in other layers; the share of the step in which the GPU, not the host, sets the pace.

Fix: `model.to(memory_format=torch.channels_last)`, and the same for the images when they are copied to the device.

Estimate: between nothing and a third of forward and backward: 20 to 47 % more images/s are reported for ResNet50 (timm on RTX
3090: 826 to 1218). Measure it by a trial.

False alarms: nets with GroupNorm get slower in channels-last, and transformers have only one convolution: the rule
stays silent for both. It is enough that input or weights are channels-last, because cuDNN follows it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import Expression, Invocation, ModelChange
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_CONV_SHARE, KERNEL_LAYOUT_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import LAYOUT_CHANNELS_FIRST, PRECISION_CAPABILITY
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.model_documents import LayerFacts
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import computing_s, facts_of, if_computed_faster, layers_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN_MAX = 1.47
_HALF_PRECISION = ("bfloat16", "float16")
_GROUP_NORM = "GroupNorm"


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    first, capability = a.by_rank(LAYOUT_CHANNELS_FIRST), a.by_rank(PRECISION_CAPABILITY)
    ranks = [
        rank for rank in first if first[rank] and _in_half(a, rank) and capability.get(rank, 0.0) >= t["capability"]
    ]
    if not ranks or len(ranks) < len(first) or any(not _convolves(a, rank, t) for rank in ranks):
        return Clear(RULE.id)
    step = a.value(STEP_TIME_S)
    computing = {rank: computing_s(a, rank) * _convolving(a, rank) for rank in ranks}
    if common(computing) < t["compute"] * step:
        return Clear(RULE.id)
    best = if_computed_faster(a, dict.fromkeys(ranks, 1.0 / _GAIN_MAX), hopeful=True)
    level = severity((step - best) / 2 / step)
    if level is None:
        return Clear(RULE.id)
    shape = facts_of(a, ranks[0]).get("conv", LayerFacts()).get("shape")
    return Finding(
        rule=RULE.id,
        title="Channels-first (NCHW) convolutions in half precision",
        severity=level,
        confidence=confidence(a, cap=0.75),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence.of(
                LAYOUT_CHANNELS_FIRST,
                1.0,
                note=f"input{f' {shape}' if shape else ''} and weights of the first convolution are channels-first, in half precision",
            ),
            Evidence(
                "compute",
                common(computing),
                "s",
                t["compute"] * step,
                f"{100 * common(computing) / step:.0f} % of a {duration(step)} step",
            ),
        ),
        fixes=(
            Fix.of(
                "keep model and images in channels-last",
                ModelChange(Invocation("model.to", arguments=(("memory_format", Expression("torch.channels_last")),))),
                _where(a, ranks[0]),
                "small change",
                more="; x = x.to(device, memory_format=torch.channels_last, non_blocking=True)",
            ),
        ),
        saving=model_of(a).saving(
            best, step, "20 to 47 % more images/s are reported for ResNet50, other nets may gain nothing: measure"
        ),
    )


def _in_half(a: Analysis, rank: int) -> bool:
    conv = facts_of(a, rank).get("conv", LayerFacts())
    return conv.get("autocast") in _HALF_PRECISION or conv.get("weight") in _HALF_PRECISION


def _convolves(a: Analysis, rank: int, t: Thresholds) -> bool:
    """Mostly convolutions and no GroupNorm; a model whose layers were not counted has at least one convolution."""
    layers = layers_of(facts_of(a, rank))
    return not layers or (layers.get("Conv2d", 0) >= t["convolutions"] and not layers.get(_GROUP_NORM))


def _convolving(a: Analysis, rank: int) -> float:
    """Convolutions and their transposes as a share of kernel time; 1 without a profiler window."""
    shares = [a.get(measure, rank) for measure in (KERNEL_CONV_SHARE, KERNEL_LAYOUT_SHARE)]
    known = [share for share in shares if share is not None]
    return sum(known) if known else 1.0


def _where(a: Analysis, rank: int) -> Where | None:
    copy = next((copy for copy in a.call_sites.copies if copy.rank == rank and copy.file), None)
    return Where(copy.file, copy.line) if copy else None


RULE = rule(
    __name__,
    "Channels-first (NCHW) convolutions under AMP",
    check,
    needs=(STEP_TIME_S, PRECISION_CAPABILITY, LAYOUT_CHANNELS_FIRST),
    thresholds={
        "capability": Threshold(7.0, "Volta was the first with tensor cores"),
        "compute": Threshold(0.20, "of the step: below it, a third saved is too small a gain"),
        "convolutions": Threshold(4, "convolutions: a transformer has one, which cuts images into patches"),
    },
    traced=True,
)
