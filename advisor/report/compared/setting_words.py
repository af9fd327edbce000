"""Settings in which two runs differ, as table rows: titles instead of the recorded names, sizes with units, core lists as ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rn50_advisor.advisor.model.documents.comparison import FactChange
from rn50_advisor.advisor.model.wording import quantities as fmt

SETTING_TITLES = {
    "autocast.device": "autocast device",
    "autocast.dtype": "autocast data type",
    "autocast.enabled": "autocast",
    "cores": "CPU cores",
    "cpu_model": "CPU model",
    "cpus_allowed": "allowed CPUs",
    "cpus_at_start": "CPUs at the start",
    "cuda.device": "GPU of rank 0",
    "cuda.memory_bytes": "GPU memory of rank 0",
    "cuda.name": "GPU model of rank 0",
    "cwd": "working directory",
    "dataset.class": "dataset class",
    "dataset.length": "dataset length",
    "dataset.root": "dataset folder",
    "ddp.bucket_bytes": "DDP bucket sizes",
    "ddp.bucket_cap_bytes": "DDP bucket_cap_mb",
    "ddp.has_sync_bn": "SyncBatchNorm",
    "ddp.module_name": "DDP module",
    "ddp.total_parameter_size_bytes": "DDP parameter size",
    "deterministic": "deterministic algorithms",
    "driver": "NVIDIA driver",
    "driver_cuda": "CUDA of the driver",
    "gc.enabled": "garbage collection",
    "gpu_paths.p2p": "GPU peer-to-peer access",
    "gpu_paths.path": "GPU interconnect",
    "gpus": "GPUs",
    "gpus.capability": "GPU compute capability",
    "gpus.ecc": "GPU ECC",
    "fast_half": "fast half precision of the CPU",
    "gpus.gpm": "GPU performance monitoring (GPM)",
    "gpus.mem_total_bytes": "GPU memory",
    "gpus.mig": "MIG mode",
    "gpus.mig_instances": "MIG instances",
    "gpus.name": "GPU model",
    "gpus.cpus": "CPUs local to the GPUs",
    "gpus.numa_node": "NUMA nodes of the GPUs",
    "gpus.nvlink_mb_per_s": "NVLink bandwidth, MB/s",
    "gpus.nvlink_switched": "NVSwitch",
    "gpus.nvlinks": "NVLinks per GPU",
    "gpus.pcie_gen_gpu_max": "PCIe generation of the GPU",
    "gpus.pcie_gen_max": "PCIe generation of GPU and slot",
    "gpus.pcie_width_max": "PCIe lanes",
    "gpus.power_limit_default_w": "GPU default power limit, W",
    "gpus.power_limit_max_w": "GPU maximum power limit, W",
    "gpus.sm_clock_max_mhz": "GPU maximum SM clock, MHz",
    "in_order": "batches in order",
    "machine": "architecture",
    "mem_total_bytes": "host memory",
    "os": "operating system",
    "rdma_ports": "RDMA ports",
    "slow_denormals": "slow with denormal numbers",
    "smt": "simultaneous multithreading (SMT)",
    "swap_total_bytes": "swap",
    "threads": "CPU threads",
}
_CPU_LISTS = ("cpus_allowed", "numa_nodes.")
# Words as torch or the field writes them, of names that have no title of their own.
_SPELT = {
    "conv": "convolutions",
    "cuda": "CUDA",
    "ddp": "DDP",
    "gpus": "GPU",
    "gpu": "GPU",
    "numa": "NUMA",
    "linear": "linear layers",
    "nccl": "NCCL",
    "nvlink": "NVLink",
    "nvlinks": "NVLinks",
    "pcie": "PCIe",
    "pictures": "input images",
    "rdma": "RDMA",
}
_NAMED_MIN = 3  # settings of one thing that only one run has share a row


def rows(facts: Sequence[FactChange]) -> Iterator[tuple[str, str, str, str]]:
    """(group, title, before, after) of each difference; settings of one thing that one run lacks are counted in one row."""
    for (group, thing, lacking), each in groupby(facts, key=_thing):
        named = list(each)
        if thing and lacking and len(named) >= _NAMED_MIN:
            there = fmt.counted(len(named), "setting")
            yield (group, _words(thing), *(("not given", there) if lacking == "base" else (there, "not given")))
        else:
            yield from ((group, title(fact), *values(fact)) for fact in named)


def title(fact: FactChange) -> str:
    """Options, variables and arguments of torch keep their names: they are typed so."""
    if fact.group in ("arguments", "environment") or (fact.group == "loader" and fact.name not in SETTING_TITLES):
        return fact.name
    return SETTING_TITLES.get(fact.name) or _words(fact.name)


def values(fact: FactChange) -> tuple[str, str]:
    return _value(fact, fact.base), _value(fact, fact.other)


def _thing(fact: FactChange) -> tuple[str, str, str]:
    """Group, the first part of a dotted name, and the run that lacks it."""
    thing, dotted, _ = fact.name.partition(".")
    lacking = "base" if not fact.base else "other" if not fact.other else ""
    return fact.group, thing if dotted and fact.group not in ("arguments", "environment") else "", lacking


def _words(name: str) -> str:
    name = name.replace("numa_nodes.", "numa_node_")
    words = name.removesuffix("_bytes").replace(".", " ").replace("_", " ").split()
    return " ".join(_SPELT.get(word, word) for word in words)


def _value(fact: FactChange, text: str | None) -> str:
    if not text:
        return "not given"
    if fact.group in ("arguments", "environment"):
        return text
    parts = text.split(", ")
    if fact.name.startswith(_CPU_LISTS) and all(part.isdecimal() for part in parts):
        return f"{fmt.numbers(map(int, parts))} ({len(parts)})" if len(parts) > 1 else text
    if fact.name.endswith("bytes") and all(part.isdecimal() for part in parts):
        return ", ".join(fmt.bytes_(int(part)) for part in parts)
    if text.isdecimal() and len(text) > len("9999") and fact.group in ("loader", "job"):
        return f"{int(text):,}"
    return text
