"""The tensors and arrays in a batch: their number and bytes. Reads no data."""

from __future__ import annotations

import sys
from collections import UserDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

_DEPTH = 4  # nested wrappers around a dataset


def batch_bytes(batch: Any) -> int:
    """Bytes of the tensors and arrays in a batch. Reads no data."""
    return sum(map(_bytes, leaves_of(batch)))


def batch_tensors(batch: Any) -> int:
    """Number of tensors in a batch, each of which a worker puts into shared memory of its own."""
    kind = sys.modules["torch"].Tensor
    return sum(isinstance(leaf, kind) for leaf in leaves_of(batch))


def leaves_of(batch: Any) -> list[Any]:
    """What the lists, tuples and dicts of a batch hold, a few levels deep."""
    kind = sys.modules["torch"].Tensor
    found, level = [], [batch]
    for _ in range(_DEPTH + 1):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, kind):  # first: a batch may have hundreds, and UserDict takes long to check
                found.append(item)
            elif isinstance(item, (list, tuple)):
                inside += item[:1000]
            elif isinstance(item, (dict, UserDict)):  # Hugging Face's BatchEncoding is one
                inside += list(item.values())[:1000]
            else:
                found.append(item)
        level = inside
    return found


def _bytes(value: Any) -> int:
    if type(value).__module__.partition(".")[0] not in ("torch", "numpy", "torchvision"):
        return 0
    try:
        return int(getattr(value, "nbytes", 0))
    except (RuntimeError, TypeError):
        return 0  # sparse tensors have no such attribute
