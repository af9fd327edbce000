"""Counts the samples in a batch. A batch may be any object of the job, so failures are ignored."""

from __future__ import annotations

from typing import Any

from ..signal_exceptions import reraise_signal_exception


def count_samples(batch: Any, batch_size: int | None) -> int:
    """Samples in a batch: the first tensor's first dimension, or the length of the first nested list that is as long as a batch."""
    if type(batch) is list and batch:  # the default collate's result for pairs
        try:
            size = getattr(batch[0], "size", None)
            if callable(size):  # for a list of lists, the exception would cost 170 us
                return int(size(0))
        except Exception:
            reraise_signal_exception()
    counted = None
    try:
        counted = _count(batch, batch_size)
    except Exception:  # batches may be anything: nested tensors have no shape, in other classes it is a method
        reraise_signal_exception()
    return counted if counted is not None else batch_size or 0


def _count(item: Any, batch_size: int | None) -> int | None:
    """The number of samples; None if unknown."""
    for depth in range(4):
        shape = getattr(item, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(item, (list, tuple)):
            if not item:
                return None
            if depth and batch_size is not None and len(item) == batch_size:
                return batch_size
            item = item[0]
        elif hasattr(item, "values"):
            item = next(iter(item.values()), None)
        else:
            return None
    return None
