"""Constant properties of a host's GPUs: model, location, and the connection of each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.probes.host.gpu.nvml import field_values
from rn50_advisor.probes.host.gpu.pci import kernel_bus_id
from rn50_advisor.probes.host.procfs import parse_cpu_list, read_text

MAX_LINKS = 18  # per GPU, up to Blackwell
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_LINK_SPEED, _LINK_COUNT = 90, 91  # field values
_AFFINITY_WORDS = 16  # 64 CPUs each
_NODE_SCOPE = 0
# Notation of `nvidia-smi topo -m`.
_LEVELS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_PEER = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}


@dataclass(frozen=True, slots=True)
class MigInstance:
    uuid: str
    name: str
    mem_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """Constant properties of a GPU. None: unknown.

    `index` is NVML's, in PCI bus order; CUDA's device 0 in a rank is `visible_devices(...)[0]`.
    """

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    mem_total_bytes: int | None
    mig: bool = False
    mig_instances: tuple[MigInstance, ...] = ()
    capability: str | None = None
    power_limit_default_w: float | None = None
    power_limit_max_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_gen_max: int | None = None  # maximum of GPU and slot together
    pcie_gen_gpu_max: int | None = None
    pcie_width_max: int | None = None
    ecc: bool | None = None
    gpm: bool | None = None
    nvlinks: int | None = None  # number of links, connected or not
    nvlink_mb_per_s: int | None = None  # per link
    nvlink_switched: bool | None = None
    numa_node: int | None = None
    cpus: str | None = None  # CPUs near the GPU, such as "0-31,64-95"

    @property
    def mig_uuids(self) -> tuple[str, ...]:
        return tuple(instance.uuid for instance in self.mig_instances)


@dataclass(frozen=True, slots=True)
class GpuConnection:
    """A pair of GPUs. `path`: NV12 (number of NVLinks) or the level where their PCIe paths meet; `p2p`: status of peer access."""

    a: int
    b: int
    path: str
    p2p: str


class DriverQueries:
    """Makes driver calls and returns None (unknown) on failure, without a gap: no rule depends on a constant property."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def __call__(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError:
            return None


def describe(nvml: Any, index: int, handle: Any, root: Path = Path("/")) -> GpuDevice:
    ask = DriverQueries(nvml)
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    pci = ask("nvmlDeviceGetPciInfo", handle)
    bus_id = pci.busId if pci else ""
    mode = ask("nvmlDeviceGetMigMode", handle)
    capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
    limits = ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    support = ask("nvmlGpmQueryDeviceSupport", handle)
    mig = bool(mode and mode[0])
    return GpuDevice(
        index=index,
        name=ask("nvmlDeviceGetName", handle) or "unknown GPU",
        uuid=ask("nvmlDeviceGetUUID", handle) or "",
        pci_bus_id=bus_id,
        mem_total_bytes=int(memory.total) if memory else None,
        mig=mig,
        mig_instances=_instances(ask, handle) if mig else (),
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        power_limit_default_w=_watts(ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        power_limit_max_w=_watts(limits[1]) if limits else None,
        sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
        pcie_gen_max=ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_gen_gpu_max=ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", handle),
        pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        ecc=_ecc(nvml, handle),
        gpm=None if support is None else bool(support.isSupportedDevice),
        **_links(ask, handle),
        **_place(ask, handle, bus_id, root),
    )


def mig_handles(nvml: Any, handle: Any) -> list[Any]:
    ask = DriverQueries(nvml)
    slots = range(ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
    found = [ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in slots]
    return [instance for instance in found if instance is not None]


def paths(nvml: Any, devices: Sequence[GpuDevice], handles: Mapping[int, Any]) -> tuple[GpuConnection, ...]:
    """Every pair of GPUs once. "?" stands for what the driver does not report."""
    ask = DriverQueries(nvml)
    here = [device for device in devices if device.index in handles]
    ends = {d.index: _far_ends(ask, handles[d.index], d.nvlinks or 0) for d in here}
    found = []
    for number, one in enumerate(here):
        for other in here[number + 1 :]:
            a, b = handles[one.index], handles[other.index]
            links = _links_between(ends[one.index], ends[other.index], other.pci_bus_id)
            level = ask("nvmlDeviceGetTopologyCommonAncestor", a, b)
            readable, writable = (ask("nvmlDeviceGetP2PStatus", a, b, index) for index in (0, 1))
            refused = next((status for status in (readable, writable) if status != 0), 0)
            path = f"NV{links}" if links else _LEVELS.get(level, "?")
            found.append(GpuConnection(one.index, other.index, path, _PEER.get(refused, "?")))
    return tuple(found)


def cpu_list(numbers: frozenset[int]) -> str:
    """Formats a set of CPUs like the kernel: "0-31,64-95"."""
    ordered = sorted(numbers)
    starts = [n for n in ordered if n - 1 not in numbers]
    ends = [n for n in ordered if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _ecc(nvml: Any, handle: Any) -> bool | None:
    """True if ECC is on; False also if the GPU does not support the query; None: unknown."""
    try:
        return bool(nvml.nvmlDeviceGetEccMode(handle)[0])
    except nvml.NVMLError_NotSupported:
        return False
    except nvml.NVMLError:
        return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3


def _instances(ask: DriverQueries, handle: Any) -> tuple[MigInstance, ...]:
    found = []
    for instance in mig_handles(ask.nvml, handle):
        uuid, memory = ask("nvmlDeviceGetUUID", instance), ask("nvmlDeviceGetMemoryInfo", instance)
        if uuid:
            name = ask("nvmlDeviceGetName", instance) or ""
            found.append(MigInstance(uuid, name, int(memory.total) if memory else None))
    return tuple(found)


def _links(ask: DriverQueries, handle: Any) -> dict[str, Any]:
    values = field_values(ask.nvml, handle, (_LINK_COUNT, _LINK_SPEED)) or {}
    count, speed = values.get(_LINK_COUNT), values.get(_LINK_SPEED)
    if not isinstance(count, float):
        count = _count_links(ask.nvml, handle)
    kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, 0) if count else None
    return {
        "nvlinks": None if count is None else int(count),
        "nvlink_mb_per_s": int(speed) if isinstance(speed, float) and speed > 0 else None,
        "nvlink_switched": None if kind is None else kind == _SWITCH,
    }


def _count_links(nvml: Any, handle: Any) -> float | None:
    """Number of NVLinks, counted by asking for each one; 0 if the GPU has none, None if the driver does not answer."""
    found = 0.0
    for link in range(MAX_LINKS):
        try:
            nvml.nvmlDeviceGetNvLinkState(handle, link)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            return found
        except nvml.NVMLError:
            return None
        found += 1
    return found


def _place(ask: DriverQueries, handle: Any, bus_id: str, root: Path) -> dict[str, Any]:
    """CPUs and NUMA node near the GPU, from the driver, else from the kernel."""
    nodes = _bits(ask("nvmlDeviceGetMemoryAffinity", handle, _AFFINITY_WORDS, _NODE_SCOPE))
    near = _bits(ask("nvmlDeviceGetCpuAffinity", handle, _AFFINITY_WORDS))
    device = root / "sys/bus/pci/devices" / kernel_bus_id(bus_id)
    if not near:
        near = parse_cpu_list(read_text(device / "local_cpulist") or "")
    node = min(nodes) if len(nodes) == 1 else int(read_text(device / "numa_node") or "-1")
    return {"numa_node": node if node >= 0 else None, "cpus": cpu_list(near) or None}


def _bits(words: Any) -> frozenset[int]:
    if words is None:
        return frozenset()
    return frozenset(64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def _far_ends(ask: DriverQueries, handle: Any, links: int) -> list[str]:
    """The other end of each active link: "switch", or the bus id of a GPU."""
    found = []
    for link in range(links):
        if ask("nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        if ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == _SWITCH:
            found.append("switch")
        elif (pci := ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)) is not None:
            found.append(str(pci.busId))
    return found


def _links_between(ends: list[str], other_ends: list[str], other_bus_id: str) -> int:
    """Number of NVLinks between two GPUs. Through a switch, each GPU can use all its links."""
    return ends.count(other_bus_id) or min(ends.count("switch"), other_ends.count("switch"))
