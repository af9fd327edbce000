"""Sizes of batches, and the padding in token batches on the CPU: from their attention masks, else from what fills the ends of rows."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..workers.sample_parts import own
from .batch_contents import batch_bytes

if TYPE_CHECKING:
    from ...documents.rank_documents import BatchSizes, PaddingFacts
    from .process_facts import Facts

_NAMES = ("attention_mask", "input_mask", "padding_mask")
_OTHER_NAMES = (
    "label",
    "mask",
    "type",
    "position",
    "segment",
    "target",
)  # parts of names of whole numbers that are no tokens
_WIDTH_MIN = 8  # of rows of tokens: in shorter ones chance fills the ends
_REPEATS_MAX = 0.5  # of the tokens equal to the one before: more in flags, types and segments
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
        self._padded_ends: PaddingFacts = {"looks": 0, "cells": 0, "tokens": 0, "longest": 0}
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
        sums, seen = self._padding, _mask_of(batch, 0)
        tokens = None if seen is None else seen.sum(dim=1).tolist()
        if seen is None and not sums["looks"]:
            sums, seen = self._padded_ends, _rows_of_tokens(batch, 0)
            tokens = None if seen is None else _tokens_between(seen)
        if seen is None or tokens is None:
            self._without_mask += not self._padding["looks"] and not self._padded_ends["looks"]
            return
        rows, width = seen.shape
        sums["looks"] += 1
        sums["cells"] += int(rows * width)
        sums["tokens"] += int(sum(tokens))
        sums["longest"] += int(rows * max(tokens, default=0))
        if sums is self._padding:
            self._facts.values["padding"] = sums
        else:
            self._facts.values["padded_ends"] = sums


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
        if _is_table(torch, mask):
            return mask if mask.dtype in (torch.bool, torch.int64, torch.int32, torch.uint8) else None
    return None


def _is_table(torch: Any, value: Any) -> bool:
    """True for a tensor on the CPU with rows, of a size that can be summed."""
    return (
        type(value) is torch.Tensor
        and value.device.type == "cpu"
        and value.dim() == 2
        and 0 < value.numel() <= _CELLS_MAX
    )


def _rows_of_tokens(item: Any, depth: int) -> Any:
    """The first tensor that may hold the numbers of tokens, one row per sample; None if there is none on the CPU."""
    torch: Any = sys.modules["torch"]
    if _is_table(torch, item):
        fits = item.dtype in (torch.int64, torch.int32) and item.shape[0] > 1 and item.shape[1] >= _WIDTH_MIN
        return item if fits and int(item.min()) >= 0 else None
    if depth >= _DEPTH_MAX:
        return None
    if isinstance(item, (list, tuple)):
        parts = list(item[:8])
    else:
        fields = item if type(item) is dict else own(item).get("data") if hasattr(item, "__dict__") else None
        named = fields.items() if type(fields) is dict else ()
        parts = [part for name, part in named if not any(word in str(name).lower() for word in _OTHER_NAMES)]
    return next((found for part in parts if (found := _rows_of_tokens(part, depth + 1)) is not None), None)


def _tokens_between(ids: Any) -> list[int] | None:
    """Tokens of each row without the number that fills only the ends of rows, or only their starts; None if they look like no tokens."""
    rows, width = ids.shape
    tokens, stands_inside = [width] * rows, False
    for end, beside in ((-1, -2), (0, 1)):
        filled = ids[:, end][ids[:, end] == ids[:, beside]].tolist()
        if not filled:
            continue
        padding = ids == max(set(filled), key=filled.count)
        inside = padding[:, :-1] & ~padding[:, 1:] if end else ~padding[:, :-1] & padding[:, 1:]
        if bool(inside.any()):
            stands_inside = True
            continue
        counts = (~padding).sum(dim=1).tolist()
        if sum(counts) < sum(tokens):
            tokens = counts
    padded = [width - count for count in tokens]
    if not min(tokens) or (stands_inside and not any(padded)):
        return None
    repeats = int((ids[:, 1:] == ids[:, :-1]).sum()) - sum(max(count - 1, 0) for count in padded)
    return tokens if repeats <= _REPEATS_MAX * sum(tokens) else None
