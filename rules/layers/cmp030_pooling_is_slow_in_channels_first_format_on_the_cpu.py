"""Slow layers in channels-first (NCHW) format on the CPU.

What it does: finds convolutional models on CPUs that spend much of the step on pooling or resizing channels-first images, or on
convolutions of each channel by itself (depthwise, groups=channels) with kernels of 5×5 and more.

Fires when: pooling and resizing of channels-first images in the forward pass and such convolutions in the backward pass take ≥ 5 % of the
step together, and their gain exceeds what the other convolutions could lose by ≥ 2 % of the step.

Why it is slow: torch's CPU code for these layers computes many channels at once if these lie side by side in memory. In channels-first
format it computes one element after the other.

Evidence: stack samples of the forward pass in pooling and resizing; the convolutions' time by stack samples and by backward passes timed
node by node, with their kernels; the memory format of the first convolution's input and weights.

Fix: `model = model.to(memory_format=torch.channels_last)`: the output of a convolution has the format of its weights, and so have the
layers behind it. Input images need no change.

Estimate: pooling and resizing without 70 to 95 % of their forward pass, depthwise convolutions without 30 to 70 % of their backward pass,
1×1 convolutions between them without up to 45 %, and other convolutions between 20 % slower and 15 % faster. Measured with one and two
threads, depthwise ones on an Intel Xeon, the others on an AMD EPYC: maximum pooling 5 to 9 times as fast in both passes, average pooling 4
to 7, resizing mostly 4 to 12. Whole nets: a small CNN with pooling 1.4 and 1.5 times, SqueezeNet 1.35 and 1.4, ResNet18 0.9, VGG11 0.96
and 0.98. Compare by a trial.

False alarms: convolutions of many channels become slower, and mostly they take more of the step than pooling: the rule then stays silent,
as it does for group and instance norms, which become slower, too. Global (adaptive) pooling is slower in channels-last, and takes little.
Images that the script resizes itself, outside of a layer, are not counted: the model's format is not theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import Expression, Invocation, ModelChange
from rn50_advisor.advisor.model.measures.pace_measures import LAYOUT_CHANNELS_FIRST
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_CONVOLUTIONS_S,
    STEP_DEPTHWISE_S,
    STEP_PIXELWISE_S,
    STEP_POOLING_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration, percent
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of, layers_of, step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


class _Saved(NamedTuple):
    """Shares of the time of layers: the forward pass of pooling, the backward pass of depthwise convolutions with large kernels, that of
    1×1 convolutions between them, other convolutions.
    """

    pooling: float
    depthwise: float
    pixelwise: float
    others: float


# Two threads and one, torch 2.14, 3 to 512 channels, both formats in turns on an AMD EPYC; depthwise and 1×1 convolutions one after the
# other on an Intel Xeon. Depthwise ones of 32 to 256 channels, 14 to 32 pixels wide, kernels of 5 and 7, in 12 sizes: 0.93 to 3.29 times as
# fast, 2.2 to 3.3 in eight of them, 0.9 to 1.5 with 14 pixels; those of 3×3 0.65 to 1.25. 1×1 ones alone 0.98 and 1.07; in one net with
# depthwise ones, whose results then need no other format, about half of what was not depthwise went. What other convolutions do is by whole
# nets: 19 and 11 % slower in ResNet18 and VGG11, 7 to 15 % faster with few channels.
_BEST, _WORST = _Saved(0.95, 0.70, 0.45, 0.15), _Saved(0.70, 0.30, 0.0, -0.20)
_SLOWER_NORMS = {"GroupNorm", "InstanceNorm2d"}
_FORMAT = ModelChange(Invocation("model.to", arguments=(("memory_format", Expression("torch.channels_last")),)))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    first = a.by_rank(LAYOUT_CHANNELS_FIRST)
    if a.on_gpu or not first or not all(first.values()) or any(_has_slower_norms(a, rank) for rank in first):
        return Clear(RULE.id)
    pooling, convolutions = a.by_rank(STEP_POOLING_S), a.by_rank(STEP_CONVOLUTIONS_S)
    if unknown := tuple(m for m in (STEP_POOLING_S, STEP_CONVOLUTIONS_S) if not a.by_rank(m)):
        return NotMeasured(RULE.id, unknown)
    depthwise = {rank: a.get(STEP_DEPTHWISE_S, rank) or 0.0 for rank in convolutions}
    step, slow = a.value(STEP_TIME_S), common(pooling) + common(depthwise)
    best, worst = (_with(a, pooling, depthwise, convolutions, saved) for saved in (_BEST, _WORST))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if level is None or worst > (1.0 - t["sure"]) * step or slow < t["pooling"] * step:
        return Clear(RULE.id)
    layers = [
        each
        for each in (
            ("pooling", STEP_POOLING_S, common(pooling), "forward"),
            ("depthwise convolutions", STEP_DEPTHWISE_S, common(depthwise), "backward"),
        )
        if 2 * each[2] >= slow
    ]
    kinds = " and ".join(what for what, *_ in layers)
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title=f"Slow {kinds}: channels-first (NCHW) images on the CPU",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        evidence=(
            *(
                Evidence.of(
                    measure,
                    seconds,
                    t["pooling"] * step if len(layers) == 1 else None,  # else of their sum
                    f"{percent(100 * seconds / step)} of a {duration(step)} step, in the {phase} pass",
                )
                for _, measure, seconds, phase in layers
            ),
            Evidence.of(
                STEP_CONVOLUTIONS_S,
                common(convolutions),
                None,
                "per step in convolutions, of which others than depthwise ones keep their speed within 20 %",
                form="continues",
            ),
        ),
        fixes=(Fix.of("keep the model in channels-last format", _FORMAT, None, "one line"),),
        saving=model.saving(model.at_best(best), worst, f"{kinds} of several channels at once"),
    )


def _has_slower_norms(a: Analysis, rank: int) -> bool:
    return bool(_SLOWER_NORMS & layers_of(facts_of(a, rank)).keys())


def _with(
    a: Analysis,
    pooling: Mapping[int, float],
    depthwise: Mapping[int, float],
    convolutions: Mapping[int, float],
    saved: _Saved,
) -> float:
    """The step with these shares of pooling and of convolutions saved."""
    # most of the convolutions' time is in the backward pass
    spared = {(rank, "forward"): saved.pooling * seconds for rank, seconds in pooling.items()}
    for rank, seconds in convolutions.items():
        pixelwise = (a.get(STEP_PIXELWISE_S, rank) or 0.0) if depthwise[rank] else 0.0
        others = max(0.0, seconds - depthwise[rank] - pixelwise)
        spared[rank, "backward"] = (
            saved.depthwise * depthwise[rank] + saved.pixelwise * pixelwise + saved.others * others
        )
    return step_sparing(a, spared, hopeful=saved == _BEST)


RULE = rule(
    __name__,
    "Slow layers in channels-first (NCHW) format on the CPU",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "pooling": Threshold(0.05, "of the step: severity 'medium' begins at 5 %"),
        "sure": Threshold(
            0.02, "of the step, saved at worst: convolutions of many channels lose more than pooling gains"
        ),
    },
)
