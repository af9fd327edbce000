"""The table of common cloud instances with NVIDIA GPUs, and the rows that fit a machine.

Memory of the host is in GiB, as the kernel counts it (Google writes GB and means GiB). Memory of a GPU is the nominal
GB of its data sheet, of which a driver shows a little less. Networks are in Gb/s; 8 Gb/s are 1 GB/s.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from rn50_advisor.advisor.reference.gpu_names import gpu_model

Link = Literal["nvlink", "pcie"]
# A driver shows 22.5 GiB of a 24 GB A10G (ECC takes a part) and 139.8 GiB of a 141 GB H200; models of 40 and 80 GB differ much more.
_GPU_MEMORY = (0.85, 1.08)
# The kernel reserves a part: 1,121 of 1,152 GiB are visible on the largest machines, 15.4 of 16 on the smallest.
_HOST_MEMORY = (0.88, 1.02)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type. `link` connects its GPUs: None for a single GPU or if no source says. `network_gbit_per_s`: None if not known."""

    provider: str
    name: str
    gpu: str
    gpus: int
    gpu_memory_gb: int
    vcpus: int
    memory_gib: int
    link: Link | None
    network_gbit_per_s: float | None
    sources: tuple[str, ...]

    @property
    def words(self) -> str:
        """Text such as `AWS p4d.24xlarge (8 × A100-SXM, 96 vCPUs, 1152 GiB)`."""
        return f"{self.provider} {self.name} ({self.gpus} × {self.gpu}, {self.vcpus} vCPUs, {self.memory_gib} GiB)"


@functools.cache
def instances() -> tuple[Instance, ...]:
    """The whole table."""
    return tuple(_row(cells) for cells in _table("instances.csv"))


@functools.cache
def sources() -> dict[str, str]:
    """Returns title and address by the key of a source."""
    return {row["source"]: f"{row['title']}, {row['url']}" for row in _table("sources.csv")}


def by_name(name: str) -> Instance | None:
    """Returns the instance of this name, as a metadata service reports it; None if the table lacks it."""
    return next((one for one in instances() if one.name.lower() == name.lower()), None)


def match(
    gpu: str,
    gpus: int,
    *,
    gpu_memory_gib: float | None = None,
    link: Link | None = None,
    vcpus: int | None = None,
    memory_gib: float | None = None,
) -> tuple[Instance, ...]:
    """Returns the instances that a machine may be, most likely first; empty if the table has none.

    `gpu`: the driver's name of a device; `gpus`: their number; `link`: what connects them. Arguments that are not given
    are not compared. Cores and memory of the host (not of a container) distinguish sizes. If no row has them, the
    machine may be a part of an instance, and all rows with these GPUs are returned, nearest number of cores first.
    """
    fitting = _fitting(gpu, gpus, gpu_memory_gib, link)
    exact = [one for one in fitting if _sized(one, vcpus, memory_gib)]
    return tuple(sorted(exact or fitting, key=lambda one: abs(one.vcpus - vcpus) if vcpus is not None else 0))


def exactly(
    gpu: str,
    gpus: int,
    *,
    gpu_memory_gib: float | None,
    link: Link | None,
    vcpus: int | None,
    memory_gib: float | None,
) -> tuple[Instance, ...]:
    """Returns the instances with exactly these GPUs, cores and memory; some have two names. Empty if cores or memory are not known."""
    if vcpus is None or memory_gib is None:
        return ()
    return tuple(one for one in _fitting(gpu, gpus, gpu_memory_gib, link) if _sized(one, vcpus, memory_gib))


def _fitting(gpu: str, gpus: int, gpu_memory_gib: float | None, link: Link | None) -> list[Instance]:
    """Returns the instances with these GPUs, whatever their cores and memory."""
    model = gpu_model(gpu)
    return [
        one
        for one in instances()
        if one.gpu == model
        and one.gpus == gpus
        and (link is None or one.link is None or one.link == link)
        and (gpu_memory_gib is None or _within(gpu_memory_gib * 1.073741824, one.gpu_memory_gb, _GPU_MEMORY))
    ]


def _sized(one: Instance, vcpus: int | None, memory_gib: float | None) -> bool:
    cores = vcpus is None or one.vcpus == vcpus
    return cores and (memory_gib is None or _within(memory_gib, one.memory_gib, _HOST_MEMORY))


def only_one(
    gpus: Sequence[str], *, gpu_memory_bytes: float | None, vcpus: float | None, memory_bytes: float | None
) -> Instance | None:
    """Returns the only instance with exactly these GPUs, cores and host memory; None if not exactly one fits or a value is not known."""
    if not gpus or len(set(gpus)) != 1 or not gpu_memory_bytes or not vcpus or not memory_bytes:
        return None
    likely = match(
        gpus[0],
        len(gpus),
        gpu_memory_gib=gpu_memory_bytes / 2**30,
        vcpus=round(vcpus),
        memory_gib=memory_bytes / 2**30,
    )
    exact = [one for one in likely if one.vcpus == round(vcpus) and _holds(one, memory_bytes)]
    return exact[0] if len(exact) == 1 else None


def _holds(one: Instance, memory_bytes: float) -> bool:
    return _within(memory_bytes / 2**30, one.memory_gib, _HOST_MEMORY)


def _within(seen: float, nominal: float, band: tuple[float, float]) -> bool:
    return band[0] * nominal <= seen <= band[1] * nominal


def _table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((files(__package__) / name).read_text(encoding="utf-8").splitlines()))


def _row(cells: dict[str, str]) -> Instance:
    link: dict[str, Link | None] = {"nvlink": "nvlink", "pcie": "pcie", "": None}
    network = cells["network_gbit_per_s"]
    return Instance(
        provider=cells["provider"],
        name=cells["name"],
        gpu=cells["gpu"],
        gpus=int(cells["gpus"]),
        gpu_memory_gb=int(cells["gpu_memory_gb"]),
        vcpus=int(cells["vcpus"]),
        memory_gib=int(cells["memory_gib"]),
        link=link[cells["link"]],
        network_gbit_per_s=float(network) if network else None,
        sources=tuple(cells["source"].split()),
    )
