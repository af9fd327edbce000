"""Data loading: one dominant transform.

What it does: finds training that waits for input, or for cores that the workers occupy, while one named transform takes
a large part of the CPU time of every sample, or the job's own `collate_fn` of every batch, or while transforms work on
whole pictures that a crop or resize makes smaller only afterwards.

Fires when: one transform takes ≥ 40 % of a sample's CPU time, or `collate_fn` of a batch's, or pixels that are dropped
later; and the job waits for input or cores.

Why it is slow: a batch is ready no sooner than its samples, and most of a sample's time goes into this one operation.
Making it cheaper speeds up the whole loader; changing anything else in the pipeline gains little.

Evidence: the input wait as a share of the step; this transform's share of a sample's CPU time, from profiled samples
(with its standard error); its CPU time per sample. A library's transform is placed at the line of the job that makes it, if there is one.

Fix: a faster equivalent; the same operation on the device, for a whole batch at once; or applying it once before
training instead of in every epoch. A transform from the user's own code is named with file and line. Transforms before
a crop or resize: put this one first, as DAT001 says, with the same small differences.

Estimate: this run's loader simulated with cheaper batches: half of the transform's CPU time saved at worst, all of it
at best. Of transforms before a crop or resize: their time for the pixels dropped, 80 % of it at worst. Nothing is
reported if that would not shorten the step.

False alarms: reading and decoding are not transforms: if they dominate, DAT001 says what helps. With few samples, or
samples of very uneven cost, the standard error shows it. If more workers are the better fix, DAT003 or DAT004 is the
root cause and this finding is listed under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.forecast.worker_feed import WorkerFeed
from rn50_advisor.advisor.model.forecast.worker_model import step_with_cheaper_batches
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine, SamplePart
from rn50_advisor.advisor.model.measures.input_measures import (
    BATCH_COLLATE_S,
    FETCH_WALL_S,
    SAMPLE_CPU_S,
    SAMPLE_TRANSFORM_SHARE,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import (
    better_than_workers,
    common,
    crowding_evidence,
    lost_to_input,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s
from rn50_advisor.rules.data_loading.transform_order import late_shrink
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_CPU_LEFT_WORST = 0.5
_PATH_SHARE = 2 / 3  # of the stack samples that go through the line of a fix

_ON_DEVICE = "on the device, for the whole batch (torchvision.transforms.v2 accepts batches of tensors)"
# Alternatives by transform name. {size}: size of the input images.
_CHEAPER = {
    "RandomResizedCrop": "store the images{size} smaller, or decode them at a fraction (PIL: image.draft('RGB', size)); antialias=False",
    "Resize": "store the images{size} at this size once before training; or decode at a fraction (PIL: image.draft('RGB', size))",
    "GaussianBlur": "a smaller kernel_size, applied to a part of the samples (RandomApply); or " + _ON_DEVICE,
    "ColorJitter": "applied to a part of the samples (RandomApply), without hue; or " + _ON_DEVICE,
    "ToTensor": "PILToTensor: hand over uint8, and scale and normalise " + _ON_DEVICE,
    "ToImage": "decode straight into tensors (torchvision.io.decode_image) and hand over uint8",
    "ToDtype": "hand over uint8, and convert and scale " + _ON_DEVICE,
    "ConvertImageDtype": "hand over uint8, and convert and scale " + _ON_DEVICE,
    "Normalize": "hand over uint8, and normalise " + _ON_DEVICE,
}
for _name in ("RandAugment", "AutoAugment", "TrivialAugmentWide", "AugMix"):
    _CHEAPER[_name] = "on uint8 tensors instead of PIL images, after the crop; fewer operations; or " + _ON_DEVICE
for _name in ("RandomRotation", "RandomAffine", "RandomPerspective", "ElasticTransform"):
    _CHEAPER[_name] = "after the crop instead of before it, InterpolationMode.NEAREST; or " + _ON_DEVICE
_CHEAPER_OTHER = "a cheaper setting, after the crop instead of before it; or " + _ON_DEVICE
_DEFAULTS = ("default_collate", "default_convert")
_CHEAPER_COLLATE = (
    "arrays and tensors (np.stack, torch.from_numpy, torch.stack) instead of lists of numbers; "
    "what is the same in every epoch (tokenising, padding to a fixed length) once, before training"
)
_CHEAPER_OWN = "NumPy or torch on whole arrays instead of loops in Python; or once, before training; or " + _ON_DEVICE


@dataclass(frozen=True, slots=True)
class _Part:
    """Transforms or a `collate_fn` that may dominate. `of_batch`: their share of a batch's CPU time; `left_worst`: what stays of it."""

    title: str
    of_batch: float
    evidence: tuple[Evidence, ...]
    fix: Fix
    basis: str
    left_worst: float = _CPU_LEFT_WORST
    collates: bool = False


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    wait = common(waits)
    crowd = crowd_s(a, CROWDED["workers_share"].value)  # as in DAT001
    waited = wait >= t["input_wait"] * step
    loader = training_loader(a, waits)
    makers = (_late, _transform, _collate)  # the first of equals counts
    parts = () if a.sample is None else [make(a, a.sample, t, loader) for make in makers]
    part = max((p for p in parts if p is not None), key=lambda p: p.of_batch, default=None)
    if part is None or not (waited or crowd >= t["crowding"] * step):
        return Clear(RULE.id)
    best, worst = _step_without(a, part)
    lost = min(lost_to_input(a) + crowd, step - best)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    waiting = input_evidence(a, wait, t["input_wait"]) if waited else crowding_evidence(step, crowd, t["crowding"])
    return Finding(
        rule=RULE.id,
        title=part.title,
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(part.evidence[0], waiting, *part.evidence[1:]),
        fixes=(part.fix,),
        saving=model_of(a).saving(best, worst, part.basis),
        circumstances=frozenset({"better than workers"} if better_than_workers(a, worst) else ()),
    )


def _transform(a: Analysis, cost: SampleCost, t: Thresholds, loader: LoaderFacts | None) -> _Part | None:
    part, late = cost.costliest_transform, late_shrink(cost, loader)
    if part is None or part.share < t["share"]:
        return None
    if late is not None and late.share >= t["share"] and part.name in late.transforms:
        return None  # putting it after the crop keeps the samples as they are
    return _Part(
        title=f"Data loading: {part.name} takes {100 * part.share:.0f} % of each sample's CPU time",
        of_batch=part.share * _samples_share(a, cost),
        evidence=(
            Evidence.of(SAMPLE_TRANSFORM_SHARE, part.share, t["share"], _share_note(cost, part)),
            Evidence.of(
                SAMPLE_CPU_S,
                cost.cpu_s,
                note="CPU time of one sample, from opening to its tensors",
                form="explains",
            ),
        ),
        fix=_fix(cost, part, where_of(loader)),
        basis=_basis(part.name),
    )


def _late(a: Analysis, cost: SampleCost, t: Thresholds, loader: LoaderFacts | None) -> _Part | None:
    """Transforms of pixels that a later crop or resize drops."""
    late = late_shrink(cost, loader)
    if late is None or late.share < t["share"]:
        return None
    best, worst = late.shares_saved
    return _Part(
        title=f"Data loading: {100 * late.share:.0f} % of each sample's CPU time spent on pixels that {late.shrink} drops",
        of_batch=late.share * _samples_share(a, cost),
        evidence=(Evidence.of(SAMPLE_CPU_S, late.cpu_s, note=late.words, form="continues"),),
        fix=late.fix(where_of(loader)),
        basis=late.basis,
        left_worst=1.0 - worst / best,
    )


def _collate(a: Analysis, cost: SampleCost, t: Thresholds, loader: LoaderFacts | None) -> _Part | None:
    """The job's own `collate_fn`; torch's default stacks tensors, and has nothing to spare."""
    name = loader.collate if loader is not None else None
    if cost.collate_s is None or not name or name in _DEFAULTS:
        return None
    samples_s = _samples(a) * cost.cpu_s
    share = cost.collate_s / max(cost.collate_s + samples_s, 1e-9)
    if share < t["share"]:
        return None
    path = cost.path_until(_PATH_SHARE) if _is_call_of(name, cost.path[:1]) else ()
    where = Where(path[-1].file, path[-1].line) if path else where_of(loader)
    return _Part(
        title=f"Data loading: {name} takes {100 * share:.0f} % of each batch's CPU time",
        of_batch=share,
        evidence=(
            Evidence.of(
                BATCH_COLLATE_S,
                cost.collate_s,
                None,
                f"per batch in {name}; its samples take {duration(samples_s)}",
                form="continues",
            ),
            *_through(path),
        ),
        fix=Fix(f"make {name} cheaper", _CHEAPER_COLLATE, where, "small change"),
        basis=_basis(name),
        collates=True,
    )


def _is_call_of(name: str, lines: Sequence[SampleLine]) -> bool:
    """True if the line that the loader calls is of this function, or of an object's `__call__`."""
    return bool(lines) and lines[0].function.rpartition(".")[2] in (name.rpartition(".")[2], "__call__")


def _through(path: Sequence[SampleLine]) -> tuple[Evidence, ...]:
    if not path:
        return ()
    calls = " → ".join(line.words for line in path)
    return (Evidence("stack samples", float(path[-1].seen), "", None, f"of {path[-1].looks} go through {calls}"),)


def _batch_cpu_s(a: Analysis) -> float:
    feed = _slowest(a)
    return max(sum(feed.computing_s) / max(len(feed.computing_s), 1) if feed else 0.0, 1e-9)


def _samples(a: Analysis) -> float:
    """Samples per batch of the slowest rank's loader."""
    feed = _slowest(a)
    return a.value(STEP_SAMPLES) / max(feed.batches if feed else 1.0, 1e-9)


def _slowest(a: Analysis) -> WorkerFeed | None:
    return max(a.workers.feeds.values(), key=lambda f: f.alone_s) if a.workers else None


def _step_without(a: Analysis, part: _Part) -> tuple[float, float]:
    """Step time at best, without this part, and at worst, with what is left of it then."""
    step = a.value(STEP_TIME_S)
    if a.workers is None:
        return step, step
    left = [1.0 - share * part.of_batch for share in (1.0, 1.0 - part.left_worst)]
    # collating lists into tensors holds the GIL, which the thread that sends the last batch needs
    ends = [step_with_cheaper_batches(a.workers, each, hand_over=each if part.collates else 1.0) for each in left]
    best, worst = (end or (step, step) for end in ends)
    return best[0], worst[1]


def _samples_share(a: Analysis, cost: SampleCost) -> float:
    """Share of a batch's CPU time: the rest is collating and the hand-over. Samples cannot take longer than the batch."""
    return min(1.0, cost.cpu_s * _samples(a) / _batch_cpu_s(a))


def _basis(name: str) -> str:
    return f"this run's batches with half the CPU time of {name}, or without it"


def _share_note(cost: SampleCost, part: SamplePart) -> str:
    note = (
        f"{part.name}: {duration(part.cpu_s)} per sample (± {100 * part.error:.0f} %), in {cost.looks} profiled samples"
    )
    return note + (f", images of {cost.picture}" if cost.picture else "")


def _fix(cost: SampleCost, part: SamplePart, loader: Where | None) -> Fix:
    if part.file:
        return Fix(f"make {part.name} cheaper", _CHEAPER_OWN, Where(part.file, part.line), "small change")
    size = f" ({cost.picture})" if cost.picture else ""
    change = _CHEAPER.get(part.name.rpartition(".")[2], _CHEAPER_OTHER).replace("{size}", size)
    where = Where(part.made_file, part.made_line) if part.made_file else loader
    return Fix(f"replace {part.name}, or make it cheaper", change, where, "small change")


RULE = rule(
    __name__,
    "Data loading: one dominant transform",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, STEP_SAMPLES, FETCH_WALL_S, SAMPLE_TRANSFORM_SHARE),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "crowding": Threshold(0.10, "a tenth of the step, as for DAT001"),
        "share": Threshold(0.40, "halving less than two fifths of a sample makes the loader a quarter faster at most"),
    },
)
