"""Loops that start an epoch too often, or with new workers: shared by DAT006, DAT014 and DAT015."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Evidence, Fix
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_START_S,
    EPOCH_STARTS,
    EPOCH_STEPS,
    STEP_EPOCH_START_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, mean, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds

EPOCH_THRESHOLDS: Mapping[str, Threshold] = {
    "start": Threshold(0.05, "severity 'medium' begins at 5 % of the time"),
    "epochs": Threshold(1.0, "epochs started within the steady steps: with the first one, these are two"),
}
_EPOCH_STEPS_MIN = 1.5  # steps per epoch: below it most epochs have only one


def epoch_in_every_step(a: Analysis) -> bool:
    """True if every step starts an epoch: by `next(iter(loader))`, or because the data set is a single batch."""
    steps = a.by_rank(EPOCH_STEPS)
    return bool(steps) and common(steps) < _EPOCH_STEPS_MIN


def starts_workers(a: Analysis, loader: LoaderFacts) -> bool:
    """True if workers start for each epoch: they are not persistent, or the loader itself is created again in about every epoch."""
    epochs = max(a.by_rank(EPOCH_STARTS).values(), default=0.0)
    return loader.num_workers > 0 and (not loader.persistent_workers or loader.made > max(1.0, 0.5 * epochs))


def epoch_start_evidence(a: Analysis, lost_s: float, t: Thresholds, what: str = "the epoch starts") -> Evidence:
    """`lost_s`: seconds per step of the epoch starts that the finding is about."""
    step, starts, epochs = a.value(STEP_TIME_S), a.by_rank(EPOCH_START_S), max(a.by_rank(EPOCH_STARTS).values())
    note = f"{100 * lost_s / step:.0f} % of the time goes to {what}"
    note += f": {duration(mean(starts))} at each of {epochs + 1:.0f} epochs" if starts else ""
    return Evidence.of(STEP_EPOCH_START_S, lost_s, t["start"] * step, note)


def one_iterator_fix(loader: LoaderFacts) -> Fix:
    """The fix for loops in which every step starts an epoch."""
    length, where = loader.dataset.get("length"), where_of(loader)
    if length is not None and loader.batch_size and length <= loader.batch_size:
        change = "RandomSampler(data, replacement=True, num_samples=...); or index the tensors without a DataLoader"
        return Fix("make epochs longer than one batch", change, where, "small change")
    change = "batches = iter(loader) before the loop, next(batches) in it; a new iterator only when it is exhausted"
    return Fix("use one iterator for all batches", change, where, "small change")
