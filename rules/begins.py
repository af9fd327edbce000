"""Loops that begin an epoch too often, or with new workers: DAT006, DAT014 and DAT015 tell them in the same way."""

from __future__ import annotations

from advisor.core.analysis import Analysis, LoaderFacts
from advisor.core.findings import Fix
from rules.reading import common, where_of

_ONE_STEP = 1.5  # steps of an epoch: below it most have only one


def every_step_begins(a: Analysis) -> bool:
    """An epoch: by `next(iter(loader))`, or because the data are a single batch."""
    steps = a.by_rank("epoch.steps")
    return bool(steps) and common(steps) < _ONE_STEP


def starts_workers(a: Analysis, loader: LoaderFacts) -> bool:
    """For each epoch: they are not to live on, or cannot, for the loader itself is made anew about as often as epochs begin."""
    epochs = max(a.by_rank("epoch.starts").values(), default=0.0)
    return loader.num_workers > 0 and (not loader.persistent_workers or loader.made > max(1.0, 0.5 * epochs))


def begin_once(loader: LoaderFacts) -> Fix:
    """What to do where every step begins an epoch."""
    length, where = loader.dataset.get("length"), where_of(loader)
    if isinstance(length, int) and loader.batch_size and length <= loader.batch_size:
        change = "RandomSampler(data, replacement=True, num_samples=...); or index the tensors without a DataLoader"
        return Fix("make an epoch longer than a batch", change, where, "small change")
    change = "batches = iter(loader) before the loop, next(batches) in it; a new iterator only where that one ends"
    return Fix("take the batches from one iterator", change, where, "small change")
