"""What one rank trains, by its facts: the known model, how large its pictures are, with what precision it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.peaks.models import KnownModel, known_model

Values = Mapping[tuple[str, str], float]


def model_of(told: Mapping[str, Any]) -> KnownModel | None:
    optimizer = told.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return None
    tensors, elements = optimizer.get("parameters"), optimizer.get("elements")
    return known_model(tensors, elements) if isinstance(tensors, int) and isinstance(elements, int) else None


def picture_of(told: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width as the first convolution sees them, else as the loader yields them."""
    for name in ("conv", "pictures"):
        seen = told.get(name)
        shape = seen.get("shape") if isinstance(seen, Mapping) else None
        if isinstance(shape, (list, tuple)) and len(shape) == 4 and all(isinstance(n, int) for n in shape):
            last = shape[1] in (1, 3, 4)
            return (shape[2], shape[3]) if last else (shape[1], shape[2])
    return None


def precision_of(told: Mapping[str, Any], values: Values, rank: int) -> str:
    """As the recorder saw the model compute; empty where it did not."""
    half = values.get(("precision.half", f"rank:{rank}"))
    if half is None:
        return ""
    if half:
        seen = [told[name] for name in ("conv", "linear", "autocast") if isinstance(told.get(name), Mapping)]
        types = [layer.get(name) for layer in seen for name in ("autocast", "weight", "dtype")]
        return "fp16" if "float16" in types and "bfloat16" not in types else "bf16"
    return "tf32" if values.get(("precision.tf32", f"rank:{rank}")) else "fp32"
