"""The agent's documents about the machine and the job's environment, written once per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from .bounded_numbers import Number, Whole


class MigFacts(TypedDict, total=False):
    uuid: str
    name: str
    mem_total_bytes: Whole | None


class _GpuIndex(TypedDict):
    index: Whole


class GpuDeviceFacts(_GpuIndex, total=False):
    """See `GpuDevice` of probes/host/gpu/gpu_devices.py. `index_on_host` is set in jobs on several hosts."""

    index_on_host: Whole
    name: str
    uuid: str
    pci_bus_id: str
    mem_total_bytes: Whole | None
    mig: bool
    mig_instances: Sequence[MigFacts]
    capability: str | None
    power_limit_default_w: Number | None
    power_limit_max_w: Number | None
    sm_clock_max_mhz: Number | None
    pcie_gen_max: Whole | None
    pcie_gen_gpu_max: Whole | None
    pcie_width_max: Whole | None
    ecc: bool | None
    gpm: bool | None
    nvlinks: Whole | None
    nvlink_mb_per_s: Whole | None
    nvlink_switched: bool | None
    numa_node: Whole | None
    cpus: str | None


class GpuPathFacts(TypedDict):
    a: Whole
    b: Whole
    path: str
    p2p: str


class KnownCheck(TypedDict, total=False):
    """One number of an earlier triage."""

    value: Number
    unit: str
    lo: Number | None
    hi: Number | None
    source: str
    state: str
    hint: str
    place: Number | str | None


class KnownTriage(TypedDict, total=False):
    verdict: str
    made_at: Number | str | None
    checks: dict[str, KnownCheck]


class _BatchSweep(TypedDict):
    precision: str
    channels_last: bool
    batches: Sequence[Whole]
    images_per_s: Sequence[Number | None]


class BatchSweep(_BatchSweep, total=False):
    """See `Sweep` of advisor/model/documents/benchmark.py."""

    devices: Whole
    data: str
    knee: Whole | None
    oom_at: Whole | None


class KnownSweeps(TypedDict, total=False):
    model: str
    image_size: Whole
    device: str
    sweeps: list[BatchSweep]


class MachineFacts(TypedDict, total=False):
    """Properties of the machine. None: unknown."""

    hostname: str
    kernel: str
    os: str | None
    machine: str
    cpu_model: str | None
    fast_half: list[str] | None  # formats of half precision
    threads: Whole | None
    cores: Whole | None
    sockets: Whole | None
    smt: bool | None
    numa_nodes: dict[str, list[Whole]]
    mem_total_bytes: Whole | None
    swap_total_bytes: Whole | None
    hypervisor: str | None
    container: str | None
    clock_source: str | None
    cpu_governor: str | None
    rdma_ports: Whole | None
    slow_denormals: bool | None  # see `slow_denormals` of probes/host/topology.py
    gpus: list[GpuDeviceFacts]
    gpu_paths: list[GpuPathFacts]
    driver: str | None
    driver_cuda: str | None
    variables: dict[str, str]
    triage: KnownTriage
    bench: KnownSweeps
