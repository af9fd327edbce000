"""Loops that begin an epoch too often, or with new workers: DAT006, DAT014 and DAT015 tell them in the same way."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Evidence, Fix
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, mean, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds

BEGINS: Mapping[str, Threshold] = {
    "start": Threshold(0.05, "severity 'medium' begins at 5 % of the time"),
    "epochs": Threshold(1.0, "begun within the steady steps: with the first one, two epochs were seen"),
}
_ONE_STEP = 1.5  # steps of an epoch: below it most have only one


def every_step_begins(a: Analysis) -> bool:
    """An epoch: by `next(iter(loader))`, or because the data are a single batch."""
    steps = a.by_rank("epoch.steps")
    return bool(steps) and common(steps) < _ONE_STEP


def starts_workers(a: Analysis, loader: LoaderFacts) -> bool:
    """For each epoch: they are not to live on, or cannot, for the loader itself is made anew about as often as epochs begin."""
    epochs = max(a.by_rank("epoch.starts").values(), default=0.0)
    return loader.num_workers > 0 and (not loader.persistent_workers or loader.made > max(1.0, 0.5 * epochs))


def begin_evidence(a: Analysis, lost_s: float, t: Thresholds, what: str = "the begin of epochs") -> Evidence:
    """`lost_s`: of a step, what of the begin of epochs the finding is about."""
    step, starts, epochs = a.value("step.time_s"), a.by_rank("epoch.start_s"), max(a.by_rank("epoch.starts").values())
    note = f"{100 * lost_s / step:.0f} % of the time goes to {what}"
    note += f": {duration(mean(starts))} at each of {epochs + 1:.0f} epochs" if starts else ""
    return Evidence("step.epoch_start_s", lost_s, "s", t["start"] * step, note)


def begin_once(loader: LoaderFacts) -> Fix:
    """What to do where every step begins an epoch."""
    length, where = loader.dataset.get("length"), where_of(loader)
    if isinstance(length, int) and loader.batch_size and length <= loader.batch_size:
        change = "RandomSampler(data, replacement=True, num_samples=...); or index the tensors without a DataLoader"
        return Fix("make an epoch longer than a batch", change, where, "small change")
    change = "batches = iter(loader) before the loop, next(batches) in it; a new iterator only where that one ends"
    return Fix("take the batches from one iterator", change, where, "small change")
