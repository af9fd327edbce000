"""Convolutions run channels-first under AMP.

What it does: finds convolutional models in half precision whose pictures and weights lie channels-first (NCHW).

Why it is slow: cuDNN's tensor-core kernels want channels last. Before and after each convolution the tensors are reordered, or a slower
kernel is taken.

Evidence: layout of the first convolution's input and weights where the model ran; half precision in convolutions, not in other layers
alone; the share of the step that the GPU computes at its own pace.

Fix: `model.to(memory_format=torch.channels_last)`, and the pictures on their way to the device.

Estimate: of forward and backward nothing up to a third: 20 to 47 % more images/s are reported for ResNet50 (timm on RTX 3090: 826 to 1218).
Measure it by a trial.

False alarms: nets with GroupNorm get slower in channels-last, and transformers convolve once only: nothing is said of either. One of the
two in channels-last is enough: cuDNN follows it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import computing_s, facts_of, if_computed_faster, layers_of, part_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN = 1.47
_HALF = ("bfloat16", "float16")
_GROUP_NORM = "GroupNorm"


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    first, capability = a.by_rank("layout.channels_first"), a.by_rank("precision.capability")
    ranks = [
        rank for rank in first if first[rank] and _in_half(a, rank) and capability.get(rank, 0.0) >= t["capability"]
    ]
    if not ranks or len(ranks) < len(first) or any(not _convolves(a, rank, t) for rank in ranks):
        return Clear(RULE.id)
    step = a.value("step.time_s")
    computing = {rank: computing_s(a, rank) * _convolving(a, rank) for rank in ranks}
    if common(computing) < t["compute"] * step:
        return Clear(RULE.id)
    best = if_computed_faster(a, dict.fromkeys(ranks, 1.0 / _GAIN), hopeful=True)
    level = severity((step - best) / 2 / step)
    if level is None:
        return Clear(RULE.id)
    shape = part_of(facts_of(a, ranks[0]), "conv").get("shape")
    return Finding(
        rule=RULE.id,
        title="Convolutions run channels-first in half precision",
        severity=level,
        confidence=confidence(a, cap=0.75),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence(
                "layout.channels_first",
                1.0,
                "",
                None,
                f"input{f' {shape}' if shape else ''} and weights of the first convolution, in half precision",
            ),
            Evidence(
                "compute",
                common(computing),
                "s",
                t["compute"] * step,
                f"{100 * common(computing) / step:.0f} % of a {1000 * step:.0f} ms step",
            ),
        ),
        fixes=(
            Fix(
                "keep model and pictures in channels-last",
                "model = model.to(memory_format=torch.channels_last); "
                "x = x.to(device, memory_format=torch.channels_last, non_blocking=True)",
                _where(a, ranks[0]),
                "small change",
            ),
        ),
        saving=model_of(a).saving(
            best, step, "20 to 47 % more images/s are reported for ResNet50, other nets may gain nothing: measure"
        ),
    )


def _in_half(a: Analysis, rank: int) -> bool:
    conv = part_of(facts_of(a, rank), "conv")
    return conv.get("autocast") in _HALF or conv.get("weight") in _HALF


def _convolves(a: Analysis, rank: int, t: Thresholds) -> bool:
    """Mostly, and without GroupNorm; a model whose layers nobody counted has shown one convolution at least."""
    layers = layers_of(facts_of(a, rank))
    return not layers or (layers.get("Conv2d", 0) >= t["convolutions"] and not layers.get(_GROUP_NORM))


def _convolving(a: Analysis, rank: int) -> float:
    """Of what kernels take, convolutions and their reordering; all of it where nobody looked."""
    shares = [a.get(f"kernel.{kind}_share", rank) for kind in ("conv", "layout")]
    known = [share for share in shares if share is not None]
    return sum(known) if known else 1.0


def _where(a: Analysis, rank: int) -> Where | None:
    copy = next((copy for copy in a.habits.copies if copy.rank == rank and copy.file), None)
    return Where(copy.file, copy.line) if copy else None


RULE = rule(
    __name__,
    "convolutions run channels-first under AMP",
    check,
    needs=("step.time_s", "precision.capability", "layout.channels_first"),
    explains=("CMP008",),
    thresholds={
        "capability": Threshold(7.0, "Volta was the first with tensor cores"),
        "compute": Threshold(0.20, "of the step: a third of less is not worth a word"),
        "convolutions": Threshold(4, "a transformer has one, that cuts pictures into patches"),
    },
)
