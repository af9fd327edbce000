"""One transform dominates.

What it does: finds training that waits for input, or for cores that the workers hold, while a single named transform takes a large part
of the CPU time of every sample.

Why it is slow: batches are made no faster than their samples, and most of a sample's time goes into this one operation. Making it cheaper
moves the whole loader; anything else in the pipeline moves it little.

Evidence: waiting for input as a share of the step; this transform's share of a sample's CPU time, from samples that were looked into while
they were made (with its standard error); its CPU time per sample.

Fix: its faster equivalent; or the same on the device, for a whole batch at once; or once before training instead of in every epoch. A
transform of one's own is named with file and line.

Estimate: the loader of this run played through with cheaper batches: half of the transform's CPU time saved at worst, all of it at best.
Nothing is said where that would not shorten the step.

False alarms: reading and decoding is no transform: where it dominates, DAT001 says what helps. Few samples, or samples that cost very
unlike each other: the standard error tells. More workers may be the better cure: then DAT003 or DAT004 is the root, this stands under it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.forecast.worker_model import step_with_cheaper_batches
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SamplePart
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import (
    common,
    crowding_evidence,
    forecast_of,
    lost_to_input,
    model_of,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_HALVED = 0.5
# The other cure is the better one only by more than two runs of one job differ.
_CLEARLY = 0.95
_ALIKE = 1.1  # equal loaders of two ranks on two cores differed by 1.04 while one rank waited 80 ms and the other 26
_WORKER_RULES = ("DAT003", "DAT004")
# Where cores, storage or hand-over are short by themselves, a sample's transforms are not the root.
_CIRCUMSTANCES = ("CPU001", "CPU002", "CPU003", "CPU005", "DAT002", "DAT007", "DAT009")

_ON_DEVICE = "on the device, for the whole batch (torchvision.transforms.v2 takes batches of tensors)"
# What to do instead, by the transform's name. {size}: of the pictures that come in.
_CHEAPER = {
    "RandomResizedCrop": "store the pictures{size} smaller, or decode them at a fraction (PIL: image.draft('RGB', size)); antialias=False",
    "Resize": "store the pictures{size} at this size once, before training; or decode at a fraction (PIL: image.draft('RGB', size))",
    "GaussianBlur": "a smaller kernel_size, applied to a part of the samples (RandomApply); or " + _ON_DEVICE,
    "ColorJitter": "applied to a part of the samples (RandomApply), without hue; or " + _ON_DEVICE,
    "ToTensor": "PILToTensor: hand over uint8, and scale and normalise " + _ON_DEVICE,
    "ToImage": "decode straight into tensors (torchvision.io.decode_image) and hand over uint8",
    "ToDtype": "hand over uint8, and convert and scale " + _ON_DEVICE,
    "ConvertImageDtype": "hand over uint8, and convert and scale " + _ON_DEVICE,
    "Normalize": "hand over uint8, and normalise " + _ON_DEVICE,
}
for _name in ("RandAugment", "AutoAugment", "TrivialAugmentWide", "AugMix"):
    _CHEAPER[_name] = "on uint8 tensors instead of PIL pictures, after the crop; fewer operations; or " + _ON_DEVICE
for _name in ("RandomRotation", "RandomAffine", "RandomPerspective", "ElasticTransform"):
    _CHEAPER[_name] = "after the crop instead of before it, InterpolationMode.NEAREST; or " + _ON_DEVICE
_LIBRARY = "a cheaper setting, after the crop instead of before it; or " + _ON_DEVICE
_OWN = "NumPy or torch on whole arrays instead of loops in Python; or once, before training; or " + _ON_DEVICE


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value("step.time_s")
    wait = common(waits)
    part = a.sample.costliest_transform if a.sample else None
    crowd = crowd_s(a, CROWDED["workers_share"].value)  # as DAT001 reckons it
    waited = wait >= t["input_wait"] * step
    if a.sample is None or part is None or part.share < t["share"] or not (waited or crowd >= t["crowding"] * step):
        return Clear(RULE.id)
    best, worst = _step_without(a, a.sample, part)
    lost = min(lost_to_input(a) + crowd, step - best)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    better = worst < _CLEARLY * forecast_of(a).step_s(workers_for(a)[0])[0]
    loader = training_loader(a, waits)
    return Finding(
        rule=RULE.id,
        title=f"{part.name} takes {100 * part.share:.0f} % of the CPU time of every sample",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(
            Evidence("sample.transform_share", part.share, "", t["share"], _share_note(a.sample, part)),
            input_evidence(a, wait, t["input_wait"]) if waited else crowding_evidence(step, crowd, t["crowding"]),
            Evidence("sample.cpu_s", a.sample.cpu_s, "s", None, "CPU time of one sample, from opening to its tensors"),
        ),
        fixes=(_fix(a.sample, part, where_of(loader)),),
        saving=model_of(a).saving(
            best, worst, f"this run's batches with {part.name} at half its CPU time or without it"
        ),
        explains=("DAT001", *(("DAT008",) if _made_alike(a) else ()), *(_WORKER_RULES if better else ())),
        causes=(*_CIRCUMSTANCES, *(() if better else _WORKER_RULES)),
    )


def _made_alike(a: Analysis) -> bool:
    """Batches take as long to make on every rank: that one of them waits more for its own is chance, the others' wait hides theirs."""
    walls = a.by_rank("fetch.wall_s")
    return max(walls.values()) <= _ALIKE * min(walls.values())


def _step_without(a: Analysis, cost: SampleCost, part: SamplePart) -> tuple[float, float]:
    """Step time at best, without the transform, and at worst, with half of it."""
    step = a.value("step.time_s")
    if a.workers is None:
        return step, step
    feed = max(a.workers.feeds.values(), key=lambda f: f.alone_s)
    batch_cpu_s = sum(feed.computing_s) / max(len(feed.computing_s), 1)
    samples = a.value("step.samples") / max(feed.batches, 1e-9)
    # what is not in the samples is in collating and handing over; samples cannot be more than the batch
    in_samples = min(1.0, cost.cpu_s * samples / max(batch_cpu_s, 1e-9))
    ends = [step_with_cheaper_batches(a.workers, 1.0 - share * part.share * in_samples) for share in (1.0, _HALVED)]
    without, half = (end or (step, step) for end in ends)
    return without[0], half[1]


def _share_note(cost: SampleCost, part: SamplePart) -> str:
    note = f"{part.name}: {duration(part.cpu_s)} a sample (± {100 * part.error:.0f} %), in {cost.looks} samples looked into"
    return note + (f", pictures of {cost.picture}" if cost.picture else "")


def _fix(cost: SampleCost, part: SamplePart, loader: Where | None) -> Fix:
    if part.file:
        return Fix(f"make {part.name} cheaper", _OWN, Where(part.file, part.line), "small change")
    size = f" ({cost.picture})" if cost.picture else ""
    change = _CHEAPER.get(part.name.rpartition(".")[2], _LIBRARY).replace("{size}", size)
    return Fix(f"replace {part.name}, or make it cheaper", change, loader, "small change")


RULE = rule(
    __name__,
    "one transform dominates",
    check,
    needs=("step.time_s", "step.input_wait_s", "step.samples", "fetch.wall_s", "sample.transform_share"),
    explains=("COM002",),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "crowding": Threshold(0.10, "a tenth of the step, as for DAT001"),
        "share": Threshold(0.40, "halving less than two fifths of a sample makes the loader a quarter faster at most"),
    },
)
