"""Finds the devices to train on, and the settings to measure by default."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from rn50_advisor.advisor.bench.bench_plan import doublings
from rn50_advisor.advisor.instances import only_one
from rn50_advisor.advisor.instances.metadata import ask
from rn50_advisor.advisor.model.documents.benchmark import Machine, Precision
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.probes.host.cpu_probe import allowed_cores

_TENSOR_CORES = (7, 0)  # fp16
_AMPERE = (8, 0)  # TF32 and bf16
# Batches of 224² images that keep a device busy without filling its memory; smaller images get larger batches.
_BATCH = {"cuda": 256, "cpu": 8}
_BATCH_MAX = {"cuda": 16_384, "cpu": 128}
# Largest multiple of the batch in a sweep. On a GPU the sweep ends earlier, out of memory; on a CPU a large batch takes minutes and
# shows nothing.
_SWEEP_MAX = {"cuda": 1024, "cpu": 4}


@dataclass(frozen=True, slots=True)
class TorchDevices:
    """The devices that torch sees, from a process of its own."""

    device: Literal["cpu", "cuda"]
    names: tuple[str, ...]
    capability: tuple[int, int] | None
    memory_bytes: tuple[int, ...]
    models: tuple[str, ...]
    versions: Mapping[str, str]
    bf16_units: bool = False  # of the CPU


def parse_devices(probed: Mapping[str, Any], wanted: str) -> TorchDevices:
    """Parses the devices. `wanted`: auto, cpu or cuda. Raises UsageError if cuda is wanted but missing."""
    names = tuple(map(str, probed["names"]))
    if wanted == "cuda" and not names:
        raise UsageError(
            "torch sees no CUDA device here", "rn50-advisor doctor says why; --device cpu does without one"
        )
    cuda = bool(names) and wanted != "cpu"
    capability = probed.get("capability")
    return TorchDevices(
        device="cuda" if cuda else "cpu",
        names=names if cuda else (),
        capability=(int(capability[0]), int(capability[1])) if cuda and capability else None,
        memory_bytes=tuple(map(int, probed["memory_bytes"])) if cuda else (),
        models=tuple(probed["models"]),
        versions={name: str(probed[name]) for name in ("torch", "torchvision", "cuda")},
        bf16_units=bool(probed["bf16_units"]),
    )


def machine_of(found: TorchDevices, *, devices: int, metadata: bool) -> Machine:
    """Describes the machine. `metadata`: ask the provider's metadata service for the instance type; otherwise infer it
    from the hardware.
    """
    instance, source = _instance(found, metadata)
    return Machine(
        host=platform.node(),
        device=found.device,
        devices=devices,
        names=found.names,
        cores=allowed_cores(os.getpid()),
        torch=found.versions["torch"],
        torchvision=found.versions["torchvision"],
        cuda=found.versions["cuda"] if found.device == "cuda" else "",
        instance=instance,
        instance_source=source,
    )


def _instance(found: TorchDevices, metadata: bool) -> tuple[str | None, str]:
    named = ask() if metadata else None
    if named is not None:
        return f"{named.provider} {named.name}", "metadata service"
    one = only_one(
        found.names,
        gpu_memory_bytes=found.memory_bytes[0] if found.memory_bytes else None,
        vcpus=os.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
    )
    return (one.words, "GPUs, cores and memory") if one else (None, "")


def precisions_of(found: TorchDevices) -> tuple[Precision, ...]:
    """Precisions that the device has units for; a CPU without bf16 units takes ten times as long in bf16."""
    possible = possible_precisions(found)
    return possible if found.device == "cuda" or found.bf16_units else ("fp32",)


def possible_precisions(found: TorchDevices) -> tuple[Precision, ...]:
    """Precisions that may be requested."""
    if found.device == "cpu":
        return ("fp32", "bf16")
    capability = found.capability or (0, 0)
    if capability >= _AMPERE:
        return ("fp32", "tf32", "bf16", "fp16")
    return ("fp32", "fp16") if capability >= _TENSOR_CORES else ("fp32",)


def usual_batch(device: Literal["cpu", "cuda"], image_size: int) -> int:
    """Returns a power of two with about the same number of pixels for every image size, up to a limit."""
    wanted = _BATCH[device] * (224 / image_size) ** 2
    return min(1 << max(0, round(wanted).bit_length() - 1), _BATCH_MAX[device])


def usual_batches(device: Literal["cpu", "cuda"], batch: int, *, quick: bool) -> tuple[int, ...]:
    """Batches of the sweep: from below the batch at which precisions are compared up to the memory's limit; fewer if quick or on a CPU."""
    first = max(1, batch // 2 if quick else batch // 4)
    return doublings(first, batch * 2 if quick else batch * _SWEEP_MAX[device])


def usual_devices(count: int, *, quick: bool) -> tuple[int, ...]:
    """Numbers of devices: 1, 2, 4, … and all; if quick, 1 and all."""
    return tuple(sorted({1, count})) if quick else tuple(sorted({*doublings(1, count), count}))


def workers_each(machine: Machine, devices: tuple[int, ...]) -> int:
    """Loader workers per device if all devices train: its share of the cores, minus one for training."""
    return max(1, int((machine.cores or os.cpu_count() or 1) / max(devices)) - 1)
