"""Sizes of batches, and the padding in token batches from their attention masks on the CPU."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..workers.sample_parts import own
from .loader_facts import batch_bytes

if TYPE_CHECKING:
    from ...documents.rank_documents import BatchSizes, PaddingFacts
    from .process_facts import Facts

_NAMES = ("attention_mask", "input_mask", "padding_mask")
_CELLS_MAX = 1 << 20  # the sum takes a millisecond
_SAMPLES_MAX = 1000
_DEPTH_MAX = 2
_WITHOUT_MASK_MAX = 3  # first batches without a mask; then none is searched for
_INTERVAL_TIMES = 2_000  # interval in multiples of a sample's cost: one of 20 us at most every 40 ms


class BatchSamples:
    """Sums over the sampled batches."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._sizes: BatchSizes = {"looks": 0, "bytes": 0, "squares": 0.0}
        self._padding: PaddingFacts = {"looks": 0, "cells": 0, "tokens": 0, "longest": 0}
        self._due_ns = 0
        self._without_mask = 0

    def batch(self, batch: Any) -> None:
        """Called with some training batches. Samples one if it is due."""
        began = perf_counter_ns()
        if began < self._due_ns or self._sizes["looks"] >= _SAMPLES_MAX:
            return
        if size := batch_bytes(batch):
            self._sizes["bytes"] += size
            self._sizes["squares"] += float(size) * size
            self._sizes["looks"] += 1
            self._facts.values["batch_sizes"] = self._sizes  # written with the other facts
        if self._without_mask < _WITHOUT_MASK_MAX:
            self._sum_padding(batch)
        now = perf_counter_ns()
        self._due_ns = now + _INTERVAL_TIMES * (now - began)

    def _sum_padding(self, batch: Any) -> None:
        mask = _mask_of(batch, 0)
        if mask is None:
            self._without_mask += not self._padding["looks"]
            return
        tokens = mask.sum(dim=1).tolist()
        rows, width = mask.shape
        sums = self._padding
        sums["looks"] += 1
        sums["cells"] += int(rows * width)
        sums["tokens"] += int(sum(tokens))
        sums["longest"] += int(rows * max(tokens, default=0))
        self._facts.values["padding"] = sums


def _mask_of(item: Any, depth: int) -> Any:
    """The attention mask of ones and zeros, one row per sample; None if there is none on the CPU."""
    if depth >= _DEPTH_MAX:
        return None
    if isinstance(item, (list, tuple)):
        return next((found for part in item[:8] if (found := _mask_of(part, depth + 1)) is not None), None)
    fields = item if type(item) is dict else own(item).get("data")  # Hugging Face's BatchEncoding
    if type(fields) is not dict:
        return None
    torch: Any = sys.modules["torch"]
    for name in _NAMES:
        mask: Any = fields.get(name)
        if (
            type(mask) is torch.Tensor
            and mask.device.type == "cpu"
            and mask.dim() == 2
            and 0 < mask.numel() <= _CELLS_MAX
        ):
            return mask if mask.dtype in (torch.bool, torch.int64, torch.int32, torch.uint8) else None
    return None
