"""The devices to train on, and the settings that are measured by default."""

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
# Images of 224² that fill a device without filling its memory; smaller pictures more of them.
_BATCH = {"cuda": 256, "cpu": 8}
_BATCH_MAX = {"cuda": 16_384, "cpu": 128}
# Times the batch. On a GPU the sweep ends where memory does, and none has so much; on a CPU a large batch takes minutes and shows nothing.
_SWEEP_MAX = {"cuda": 1024, "cpu": 4}


@dataclass(frozen=True, slots=True)
class TorchDevices:
    """Torch's view of the devices, from a process of its own."""

    device: Literal["cpu", "cuda"]
    names: tuple[str, ...]
    capability: tuple[int, int] | None
    memory_bytes: tuple[int, ...]
    models: tuple[str, ...]
    versions: Mapping[str, str]
    bf16_units: bool = False  # of the CPU


def seen(told: Mapping[str, Any], wanted: str) -> TorchDevices:
    """`wanted`: auto, cpu or cuda. Raises UsageError where it is not there."""
    names = tuple(map(str, told["names"]))
    if wanted == "cuda" and not names:
        raise UsageError(
            "torch sees no CUDA device here", "rn50-advisor doctor says why; --device cpu does without one"
        )
    cuda = bool(names) and wanted != "cpu"
    capability = told.get("capability")
    return TorchDevices(
        device="cuda" if cuda else "cpu",
        names=names if cuda else (),
        capability=(int(capability[0]), int(capability[1])) if cuda and capability else None,
        memory_bytes=tuple(map(int, told["memory_bytes"])) if cuda else (),
        models=tuple(told["models"]),
        versions={name: str(told[name]) for name in ("torch", "torchvision", "cuda")},
        bf16_units=bool(told["bf16_units"]),
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
    """Precisions that the device has units for: a CPU without them takes ten times as long in bf16."""
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
    """A power of two; as many pixels whatever the size of the pictures, to a limit."""
    wanted = _BATCH[device] * (224 / image_size) ** 2
    return min(1 << max(0, round(wanted).bit_length() - 1), _BATCH_MAX[device])


def usual_batches(device: Literal["cpu", "cuda"], batch: int, *, quick: bool) -> tuple[int, ...]:
    """Around the batch at which precisions are compared, and from there until memory ends; a quick sweep, and a CPU's, end sooner."""
    first = max(1, batch // 2 if quick else batch // 4)
    return doublings(first, batch * 2 if quick else batch * _SWEEP_MAX[device])


def usual_devices(count: int, *, quick: bool) -> tuple[int, ...]:
    """1, 2, 4, … and all."""
    return tuple(sorted({1, count})) if quick else tuple(sorted({*doublings(1, count), count}))


def workers_each(machine: Machine, devices: tuple[int, ...]) -> int:
    """Loader workers of one device when all work: its cores, one of them left for training."""
    return max(1, int((machine.cores or os.cpu_count() or 1) / max(devices)) - 1)
