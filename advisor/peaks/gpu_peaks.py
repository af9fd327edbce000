"""Peak throughput of GPUs by precision: the vendors' dense figures in TFLOP/s. No program reaches them.

Tensor cores are assumed to accumulate in FP32, as in PyTorch; sparsity is never counted.
"""

from __future__ import annotations

import csv
import functools
import io
from dataclasses import dataclass
from importlib.resources import files

from rn50_advisor.advisor.reference.gpu_names import gpu_model

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of one GPU. `tflops`: TFLOP/s by precision, without those that the GPU has no units for."""

    gpu: str
    tflops: dict[str, float]
    source: str


def peak(device: str) -> Peak | None:
    """Returns the peak of a device, by a driver's or torch's name or the table's own; None if the table lacks it."""
    table = peaks()
    model = device if device in table else gpu_model(device)
    return table.get(model) if model else None


@functools.cache
def peaks() -> dict[str, Peak]:
    text = (files(__package__) / "gpus.csv").read_text(encoding="utf-8")
    return {row["gpu"]: _peak(row) for row in csv.DictReader(io.StringIO(text))}


def _peak(row: dict[str, str]) -> Peak:
    tflops = {name: float(row[name]) for name in PRECISIONS if row[name]}
    return Peak(row["gpu"], tflops, row["source"])
