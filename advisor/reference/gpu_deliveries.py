"""Measured performance of healthy GPUs, the reference for judging another GPU of the same model.

Bandwidths are in GB/s (10⁹ bytes), compute in TFLOP/s of dense bf16 or fp16 products. The bus bandwidth is NCCL's, of an
all-reduce of 1 GiB or more over eight GPUs of one machine. With NVLS, which reduces in the switch, the figure without
it (a ring) is given too. Each figure has the keys of its sources. Vendor figures are in `rn50_advisor.advisor.peaks`.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from rn50_advisor.advisor.reference.gpu_names import gpu_model
from rn50_advisor.advisor.reference.training_speeds import sources

# Share of published results: other drivers, clocks and boards cost up to 10 %, a fault more than 25 %.
USABLE = 0.75


@dataclass(frozen=True, slots=True)
class Figure:
    """The lowest and the highest published value. `keys`: rows of `sources.csv`."""

    lo: float
    hi: float
    keys: tuple[str, ...]

    @property
    def source(self) -> str:
        """Titles and addresses: `Azure HPC node health checks, … (https://github.com/…); …`."""
        return "; ".join(f"{sources()[key].title} ({sources()[key].url})" for key in self.keys)


@dataclass(frozen=True, slots=True)
class GpuDelivery:
    """Reference values of one GPU model. None: unpublished, or no such link. `named`: only for GPUs whose name contains this."""

    gpu: str
    named: str
    hbm_gb_per_s: Figure | None
    half_tflop_per_s: Figure | None
    h2d_gb_per_s: Figure | None
    allreduce8_gb_per_s: Figure | None
    allreduce_ring8_gb_per_s: Figure | None


def delivery(device: str) -> GpuDelivery | None:
    """Returns the row of a device, by a driver's or torch's name or the table's own; None if the table lacks it."""
    table = all_deliveries()
    model = device if any(one.gpu == device for one in table) else gpu_model(device)
    return next((one for one in table if one.gpu == model and one.named in device), None)


@functools.cache
def all_deliveries() -> tuple[GpuDelivery, ...]:
    """Returns all rows; within a model, rows that apply only to some variants come first."""
    text = (files(__package__) / "gpus.csv").read_text(encoding="utf-8")
    return tuple(_delivery(cells) for cells in csv.DictReader(text.splitlines()))


def _delivery(cells: dict[str, str]) -> GpuDelivery:
    return GpuDelivery(
        gpu=cells["gpu"],
        named=cells["named"],
        hbm_gb_per_s=_figure(cells, "hbm", "gb_per_s"),
        half_tflop_per_s=_figure(cells, "half", "tflop_per_s"),
        h2d_gb_per_s=_figure(cells, "h2d", "gb_per_s"),
        allreduce8_gb_per_s=_figure(cells, "allreduce8", "gb_per_s"),
        allreduce_ring8_gb_per_s=_figure(cells, "allreduce_ring8", "gb_per_s"),
    )


def _figure(cells: dict[str, str], what: str, unit: str) -> Figure | None:
    lo, hi = cells[f"{what}_{unit}_lo"], cells[f"{what}_{unit}_hi"]
    return Figure(float(lo), float(hi), tuple(cells[f"{what}_source"].split())) if lo else None
