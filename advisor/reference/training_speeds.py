"""Published training throughput of known models on known GPUs, each row with its source, in two tiers.

Samples are images for a model of images, whose size is that of a side in pixels, and sequences for a transformer, whose size is their
length in tokens.

`typical` is what PyTorch programs reach, `tuned` a ceiling reached with a vendor's own kernels. `course` rows are
written expectations, below every measurement: they are shown beside the others and never used as a threshold.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from rn50_advisor.advisor.reference.gpu_names import gpu_model

Precision = Literal["fp32", "tf32", "amp"]
Tier = Literal["typical", "tuned", "course"]
_MIXED = ("bf16", "fp16", "amp", "bfloat16", "float16")  # equally fast on tensor cores
_UNPUBLISHED = ("fp8", "fp4")  # no row has them
_SCALED_GPUS_MAX = 8  # beyond one machine the network determines the speed
_BATCH_TOLERANCE = 0.25  # 200 or 320 images count as 256; powers of two differ


@dataclass(frozen=True, slots=True)
class SpeedSource:
    title: str
    url: str
    note: str


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a job has in common with the rows that it is compared with. `batch_per_gpu`: samples of one pass on one GPU.

    `channels_last`: None for a model without convolutions.
    """

    channels_last: bool | None
    batch_per_gpu: float


@dataclass(frozen=True, slots=True)
class Row:
    """One published measurement. `channels_last` and `batch_per_gpu` are None if the source does not say."""

    model: str
    size: int
    gpu: str
    gpus: int
    precision: Precision
    channels_last: bool | None
    batch_per_gpu: int | None
    tier: Tier
    samples_per_s: tuple[float, float]
    source: str

    def is_like(self, job: Likeness) -> bool:
        """True if the row states the job's memory layout, and a batch within a quarter of the job's."""
        if self.batch_per_gpu is None or self.channels_last is not job.channels_last:
            return False
        return abs(job.batch_per_gpu - self.batch_per_gpu) <= _BATCH_TOLERANCE * self.batch_per_gpu


@dataclass(frozen=True, slots=True)
class SpeedBand:
    """Samples/s of all GPUs together, lowest and highest row. `scaled`: no row has this number of GPUs; one GPU's rows were multiplied."""

    lo: float
    hi: float
    tier: Tier
    rows: tuple[Row, ...]
    scaled: bool = False

    @property
    def source(self) -> str:
        """Titles of the sources: `Lambda GPU benchmarks, PyTorch ResNet50; timm …`."""
        titles = "; ".join(dict.fromkeys(sources()[row.source].title for row in self.rows))
        return f"{titles} (one GPU's, multiplied)" if self.scaled else titles


@functools.cache
def sources() -> dict[str, SpeedSource]:
    return {row["source"]: SpeedSource(row["title"], row["url"], row["note"]) for row in _table("sources.csv")}


@functools.cache
def rows() -> tuple[Row, ...]:
    """The whole table."""
    return tuple(_row(cells) for cells in _table("training.csv"))


def precision_of(name: str | None) -> Precision:
    """Returns the table's name of a precision; None, torch's value for full precision, is fp32. Raises ValueError for other names."""
    if name is None or name in ("fp32", "float32"):
        return "fp32"
    if name == "tf32":
        return "tf32"
    if name in _MIXED:
        return "amp"
    raise ValueError(f"unknown precision {name!r}")


def matching(
    device: str, *, gpus: int, precision: str | None, model: str = "resnet50", size: int = 224
) -> tuple[Row, ...]:
    """Returns the rows of all tiers for exactly this setting. `device`: a driver's or torch's name, or the table's own."""
    if precision in _UNPUBLISHED:
        return ()
    gpu = device if device in {row.gpu for row in rows()} else gpu_model(device)
    wanted = (model, size, gpu, gpus, precision_of(precision))
    return tuple(row for row in rows() if (row.model, row.size, row.gpu, row.gpus, row.precision) == wanted)


def band(
    device: str,
    *,
    gpus: int,
    precision: str | None,
    tier: Tier = "typical",
    model: str = "resnet50",
    size: int = 224,
    like: Likeness | None = None,
) -> SpeedBand | None:
    """Returns the published range for this setting in one tier; None if no source has measured it.

    For other numbers of GPUs in one machine, one GPU's rows are multiplied: by the poorest scaling in the table up to perfect scaling.
    `like`: only rows with this layout and batch size count; rows whose source does not state them do not.
    """

    def tiered(count: int) -> tuple[Row, ...]:
        found = matching(device, gpus=count, precision=precision, model=model, size=size)
        return tuple(row for row in found if row.tier == tier and (like is None or row.is_like(like)))

    if exact := tiered(gpus):
        return SpeedBand(min(r.samples_per_s[0] for r in exact), max(r.samples_per_s[1] for r in exact), tier, exact)
    one = tiered(1) if 1 < gpus <= _SCALED_GPUS_MAX else ()
    if not one:
        return None
    lo, hi = min(row.samples_per_s[0] for row in one), max(row.samples_per_s[1] for row in one)
    return SpeedBand(gpus * poorest_scaling() * lo, gpus * hi, tier, one, scaled=True)


@functools.cache
def poorest_scaling() -> float:
    """Lowest efficiency among measured pairs of one and several GPUs in one machine: 0.84, by NVIDIA on eight A100 with AMP."""
    measured = [row for row in rows() if row.tier != "course" and row.gpus <= _SCALED_GPUS_MAX]
    return min(
        many.samples_per_s[0] / many.gpus / one.samples_per_s[0]
        for one in measured
        for many in measured
        if one.gpus == 1 and many.gpus > 1 and _setting(one) == _setting(many)
    )


def _setting(row: Row) -> tuple[object, ...]:
    return row.model, row.size, row.gpu, row.precision, row.channels_last, row.batch_per_gpu, row.source


def _table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((files(__package__) / name).read_text(encoding="utf-8").splitlines()))


def _row(cells: dict[str, str]) -> Row:
    precision, tier = cells["precision"], cells["tier"]
    if precision not in ("fp32", "tf32", "amp") or tier not in ("typical", "tuned", "course"):
        raise ValueError(f"training.csv: {precision} or {tier} is no word of the table")
    return Row(
        model=cells["model"],
        size=int(cells["size"]),
        gpu=cells["gpu"],
        gpus=int(cells["gpus"]),
        precision=precision,  # type: ignore[arg-type]
        channels_last={"yes": True, "no": False, "": None}[cells["channels_last"]],
        batch_per_gpu=int(cells["batch_per_gpu"]) if cells["batch_per_gpu"] else None,
        tier=tier,  # type: ignore[arg-type]
        samples_per_s=(float(cells["samples_per_s_lo"]), float(cells["samples_per_s_hi"])),
        source=cells["source"],
    )
