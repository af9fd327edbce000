"""Images cross as float32.

What it does: finds pictures that are sent to the GPU as floating-point numbers although they still are the bytes of an image file.

Why it is slow: a byte becomes four. Collating, pinning, shared memory between worker and training process, and the copy to the device all
move four times what they need to; the transforms convert and normalise on the CPU what the GPU does in passing.

Evidence: the values of one batch lie on 256 levels a channel, whatever they were scaled and shifted by; its size; the time that the link
takes for it at least, by its generation and lanes under load (where they are not known, as the fastest link there is).

Fix: send `uint8` and convert and normalise on the device.

Estimate: three quarters of the copy at most; nothing where a stream of its own hides the copy behind the compute. The severity is that of
their mean.

False alarms: pictures that were resized, blurred or mixed as floats are no bytes any more, and the rule is silent.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, mean, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import link_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GOES = 0.75  # of the bytes: one instead of four


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    pictures, step, model = a.by_rank("copy.float_pictures_mb"), a.value("step.time_s"), model_of(a)
    copies = {rank: mb / link_of(a, rank)[0] for rank, mb in pictures.items()}
    copy = common(copies)
    if copy < t["copy"] * step:
        return Clear(RULE.id)
    loader = training_loader(a, pictures)
    best = step_without(a, "forward", {r: _GOES * s for r, s in copies.items()})
    rank = next(r for r in copies if copies[r] >= copy)
    return Finding(
        rule=RULE.id,
        title="Pictures travel to the GPU as float32, four times their size",
        severity=severity((step - best) / 2 / step) or "low",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence("copy.float_pictures_mb", mean(pictures), "MB", None, "a step and rank, of values that are bytes"),
            Evidence(
                "copy time",
                copy,
                "s",
                t["copy"] * step,
                f"{100 * copy / step:.0f} % of a {1000 * step:.0f} ms step at least, over {link_of(a, rank)[1]}",
            ),
        ),
        fixes=(
            Fix(
                "send uint8 and normalise on the device",
                _change(loader.dataset if loader else {}),
                where_of(loader),
                "small change",
            ),
        ),
        saving=model.saving(best, step, "a quarter of the bytes; nothing where the copy hides behind the compute"),
    )


def _change(dataset: Mapping[str, object]) -> str:
    """What the transforms end with, and what the loop begins with."""
    named = dataset.get("transforms")
    names = [str(name).partition("(")[0] for name in named] if isinstance(named, (list, tuple)) else []
    old = " and ".join(name for name in names if name in ("ToTensor", "Normalize", "ToDtype", "ConvertImageDtype"))
    return (
        f"transforms.PILToTensor() instead of {old or 'ToTensor and Normalize'}; in the loop "
        "x = x.to(device, non_blocking=True).float().sub_(255 * mean).div_(255 * std), mean and std on the device"
    )


RULE = rule(
    __name__,
    "images cross as float32",
    check,
    needs=("step.time_s", "copy.float_pictures_mb"),
    thresholds={"copy": Threshold(0.02, "of the step: of less than that too little can be spared")},
)
