"""Images copied as float32.

What it does: finds images that are sent to the GPU as floating-point numbers although they still hold only the bytes of
an image file.

Fires when: images are float but still hold byte values, and their copy takes ≥ 2 % of the step.

Why it is slow: each byte becomes four. Collating, pinning, shared memory between worker and training process, and the
copy to the device all move four times the necessary bytes. The transforms convert and normalise on the CPU, although
the GPU could do so at almost no cost.

Evidence: the values of one batch take at most 256 levels per channel, whatever their scale and shift; its size; the
link's minimum time for it, by its generation and lanes under load (if these are not known, for the fastest link
available).

Fix: send `uint8` and convert and normalise on the device.

Estimate: at most three quarters of the copy; nothing if a separate stream already hides the copy behind the compute.
The severity follows the mean of both.

False alarms: images that were resized, blurred or mixed as floats no longer hold bytes, and the rule stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.pace_measures import COPY_FLOAT_PICTURES_MB
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rn50_advisor.rules.analysis_reading import common, mean, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import link_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_BYTES_SAVED_SHARE = 0.75  # of the bytes are saved: one remains of four


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    pictures, step, model = a.by_rank(COPY_FLOAT_PICTURES_MB), a.value(STEP_TIME_S), model_of(a)
    copies = {rank: mb / link_of(a, rank)[0] for rank, mb in pictures.items()}
    copy = common(copies)
    if copy < t["copy"] * step:
        return Clear(RULE.id)
    loader = training_loader(a, pictures)
    best = step_without(a, "forward", {r: _BYTES_SAVED_SHARE * s for r, s in copies.items()})
    rank = next(r for r in copies if copies[r] >= copy)
    return Finding(
        rule=RULE.id,
        title="Images copied as float32, four times the size of uint8",
        severity=severity((step - best) / 2 / step) or "low",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence.of(
                COPY_FLOAT_PICTURES_MB,
                mean(pictures),
                note="per step and rank, holding only byte values",
                form="explains",
            ),
            Evidence(
                "copy time",
                copy,
                "s",
                t["copy"] * step,
                f"{100 * copy / step:.0f} % of a {duration(step)} step, at least, over {link_of(a, rank)[1]}",
            ),
        ),
        fixes=(
            Fix(
                "send uint8 and normalize on the device",
                _change(loader.dataset if loader else DescribedDataset()),
                where_of(loader),
                "small change",
            ),
        ),
        saving=model.saving(best, step, "a quarter of the bytes; no gain if the copy already overlaps with compute"),
    )


def _change(dataset: DescribedDataset) -> str:
    """The fix: the transforms end with uint8, and the loop begins with the conversion on the device."""
    names = [(name or "").partition("(")[0] for name in dataset.get("transforms", ())]
    old = " and ".join(name for name in names if name in ("ToTensor", "Normalize", "ToDtype", "ConvertImageDtype"))
    return (
        f"transforms.PILToTensor() instead of {old or 'ToTensor and Normalize'}; in the loop "
        "x = x.to(device, non_blocking=True).float().sub_(255 * mean).div_(255 * std), mean and std on the device"
    )


RULE = rule(
    __name__,
    "Images copied as float32",
    check,
    needs=(STEP_TIME_S, COPY_FLOAT_PICTURES_MB),
    thresholds={"copy": Threshold(0.02, "of the step: below it the gain is too small")},
)
