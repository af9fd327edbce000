"""What a GPU in good order has been measured to deliver, for the judgement of another one of its kind.

Bandwidths are GB/s (10⁹ bytes), compute is TFLOP/s of dense bf16 or fp16 products. The bus bandwidth is NCCL's, of an
all-reduce of 1 GiB or more over eight GPUs of one machine; where NVLS adds in the switch, the figure without it (a
ring) stands beside. Figures were collected from published measurements; `spec` marks the vendor's, which no program
reaches.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from advisor.reference.gpu_names import gpu_model

Range = tuple[float, float]
# Of what was measured elsewhere: other drivers, clocks and boards take up to a tenth, a fault takes more than a quarter.
USABLE = 0.75
SOURCE = "published measurements of machines in good order"


@dataclass(frozen=True, slots=True)
class Delivery:
    """None: nobody has published it, or the GPU has no such link."""

    gpu: str
    hbm_gb_per_s: Range
    half_tflop_per_s: float
    half_is_spec: bool
    h2d_gb_per_s: Range | None
    allreduce8_gb_per_s: Range | None
    allreduce_ring8_gb_per_s: float | None


def delivery(device: str) -> Delivery | None:
    """By a driver's or torch's name for the device, or the table's own; None where the table has none such."""
    model = device if device in _deliveries() else gpu_model(device)
    return _deliveries().get(model) if model else None


@functools.cache
def _deliveries() -> dict[str, Delivery]:
    text = (files(__package__) / "gpus.csv").read_text(encoding="utf-8")
    return {cells["gpu"]: _delivery(cells) for cells in csv.DictReader(text.splitlines())}


def all_deliveries() -> tuple[Delivery, ...]:
    return tuple(_deliveries().values())


def _delivery(cells: dict[str, str]) -> Delivery:
    def pair(name: str) -> Range | None:
        lo, hi = cells[f"{name}_lo"], cells[f"{name}_hi"]
        return (float(lo), float(hi)) if lo else None

    hbm, ring = pair("hbm_gb_per_s"), cells["allreduce_ring8_gb_per_s"]
    assert hbm is not None
    return Delivery(
        gpu=cells["gpu"],
        hbm_gb_per_s=hbm,
        half_tflop_per_s=float(cells["half_tflop_per_s"]),
        half_is_spec=cells["half_is"] == "spec",
        h2d_gb_per_s=pair("h2d_gb_per_s"),
        allreduce8_gb_per_s=pair("allreduce8_gb_per_s"),
        allreduce_ring8_gb_per_s=float(ring) if ring else None,
    )
