"""What the makers' data sheets say of GPUs: peak throughput by precision, dense figures in TFLOP/s, and the PCIe interface.

No program reaches the peaks. Tensor cores are assumed to accumulate in FP32, as in PyTorch; sparsity is never counted. What no source
states is left out: some rows lack precisions, or the interface.
"""

from __future__ import annotations

import csv
import functools
import io
from dataclasses import dataclass
from importlib.resources import files

from rn50_advisor.advisor.reference.gpu_names import gpu_model

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True)
class Peak:
    """One GPU's row. `tflops`: TFLOP/s by precision, without those that the GPU has no units for or that no source states.

    `pcie_gen` and `pcie_width` (lanes): its host interface; None: not stated.
    """

    gpu: str
    tflops: dict[str, float]
    source: str
    pcie_gen: int | None = None
    pcie_width: int | None = None
    pcie_source: str = ""


def peak(device: str) -> Peak | None:
    """Returns the peak of a device, by a driver's or torch's name or the table's own; None if the table lacks it."""
    table = peaks()
    model = device if device in table else gpu_model(device)
    return table.get(model) if model else None


def pcie_width(device: str) -> int | None:
    """Returns the PCIe lanes that the maker gave this device; None if the table does not know."""
    found = peak(device)
    return found.pcie_width if found is not None else None


@functools.cache
def peaks() -> dict[str, Peak]:
    text = (files(__package__) / "gpus.csv").read_text(encoding="utf-8")
    return {row["gpu"]: _peak(row) for row in csv.DictReader(io.StringIO(text))}


def _peak(row: dict[str, str]) -> Peak:
    tflops = {name: float(row[name]) for name in PRECISIONS if row[name]}
    gen, width = (int(row[name]) if row[name] else None for name in ("pcie_gen", "pcie_width"))
    return Peak(row["gpu"], tflops, row["source"], gen, width, row["pcie_source"])
