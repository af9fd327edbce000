"""The table of common cloud instances with NVIDIA GPUs, and which of its rows a machine may be.

Memory of the host is in GiB, as the kernel counts it (Google writes GB and means GiB); memory of a GPU is the nominal
GB of its data sheet, of which a driver shows a little less; networks are in Gb/s, eight of which are one GB/s.
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
# A driver shows 22.5 GiB of a 24 GB A10G (93 %, ECC takes its part) and 139.8 of a 141 GB H200: 40 and 80 GB lie far apart.
_GPU_MEMORY = (0.85, 1.08)
# The kernel keeps some for itself: 1,121 of 1,152 GiB are seen on the largest machines, 15.4 of 16 on the smallest.
_HOST_MEMORY = (0.88, 1.02)


@dataclass(frozen=True, slots=True)
class Instance:
    """`link` joins its GPUs: None for a single one, or where no source says. `network_gbit_per_s` is None where none was looked up."""

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
        """`AWS p4d.24xlarge (8 × A100-SXM, 96 vCPUs, 1152 GiB)`."""
        return f"{self.provider} {self.name} ({self.gpus} × {self.gpu}, {self.vcpus} vCPUs, {self.memory_gib} GiB)"


@functools.cache
def instances() -> tuple[Instance, ...]:
    """The whole table."""
    return tuple(_row(cells) for cells in _table("instances.csv"))


@functools.cache
def sources() -> dict[str, str]:
    """Key of a source: its title and address."""
    return {row["source"]: f"{row['title']}, {row['url']}" for row in _table("sources.csv")}


def by_name(name: str) -> Instance | None:
    """The instance a metadata service has named; None where the table has none of that name."""
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
    """Instances that a machine may be, the likeliest first; empty where the table knows none such.

    `gpu` is the driver's name for a device, `gpus` how many there are, `link` what joins them. What is not given is
    not asked. Cores and memory of the host (not of a container) tell sizes apart; where no row has them, the machine
    may be a part of an instance and rows stay, by nearness.
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
    """Instances that have just these GPUs, cores and memory: some are sold twice under two names. Empty where a part is not known."""
    if vcpus is None or memory_gib is None:
        return ()
    return tuple(one for one in _fitting(gpu, gpus, gpu_memory_gib, link) if _sized(one, vcpus, memory_gib))


def _fitting(gpu: str, gpus: int, gpu_memory_gib: float | None, link: Link | None) -> list[Instance]:
    """By the GPUs alone."""
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
    """The instance that holds just these GPUs, cores and memory of the host; None where none does, several do, or a part is not known."""
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
