"""The NVIDIA GPUs of this host through NVML: what they are, and how busy, full, hot and fast they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.core.metrics import ProbeGap, Reading, Sample
from probes.host.gaps import GapsOnce
from probes.host.nvml import GPU_GONE, LASTING, error_name, gap_of, open_driver
from probes.host.target import Target

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/\d+/\d+")
_ORDINAL = re.compile(r"\s*([+-]?\d+)")


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """`index` is NVML's, in the order of the PCI bus; what CUDA calls device 0 in a rank is `visible_devices(...)[0]`."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    mem_total_bytes: int | None
    mig_uuids: tuple[str, ...] = ()


def visible_devices(environment: Mapping[str, str], devices: Sequence[GpuDevice]) -> tuple[int, ...] | None:
    """NVML indices of a process's CUDA devices 0, 1, …; None where they cannot be known from the environment.

    As the CUDA driver reads CUDA_VISIBLE_DEVICES: ordinals or (unique beginnings of) UUIDs, the first bad entry ends the list, a
    repeated one empties it. Ordinals count in CUDA's own order, which is the bus order only if all GPUs are of one kind or
    CUDA_DEVICE_ORDER says so.
    """
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    if setting is not None and setting.lstrip().startswith(("GPU-", "MIG-")):
        return _by_uuid(setting, devices)
    ordered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({d.name for d in devices}) < 2
    indices = tuple(d.index for d in devices)
    if setting is None:
        return indices if ordered else None
    ordinals: list[int] = []
    for entry in setting.split(","):
        match = _ORDINAL.match(entry)  # as strtoul: "1gpu" is 1
        ordinal = int(match[1]) if match else -1
        if not 0 <= ordinal < len(indices):
            break
        if ordinal in ordinals:
            return ()
        ordinals.append(ordinal)
    return tuple(indices[o] for o in ordinals) if ordered or not ordinals else None


def _by_uuid(setting: str, devices: Sequence[GpuDevice]) -> tuple[int, ...]:
    names = [(d.uuid, d.index) for d in devices] + [(mig, d.index) for d in devices for mig in d.mig_uuids]
    found: list[tuple[str, int]] = []
    for entry in setting.split(","):
        old = _OLD_MIG.fullmatch(entry.strip())
        if old:
            matches = [(entry.strip(), index) for uuid, index in names if uuid == old[1]]
        else:
            matches = [
                (uuid, index) for uuid, index in names if uuid.startswith(entry.strip()) and len(entry.strip()) > 4
            ]
        if len(matches) != 1:
            break
        if matches[0] in found:
            return ()
        found += matches
    return tuple(index for _, index in found)


def _memory(nvml: Any, handle: Any) -> tuple[float, ...]:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)  # v1 counts what the driver reserves as used
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float(memory.used), float(memory.total)


Reader = Callable[[Any, Any], tuple[float, ...]]
READERS: tuple[tuple[tuple[str, ...], Reader], ...] = (
    (("gpu.util_pct",), lambda nvml, h: (float(nvml.nvmlDeviceGetUtilizationRates(h).gpu),)),
    (("gpu.mem_used_bytes", "gpu.mem_total_bytes"), _memory),
    (("gpu.power_w",), lambda nvml, h: (nvml.nvmlDeviceGetPowerUsage(h) / 1e3,)),
    (("gpu.power_limit_w",), lambda nvml, h: (nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,)),
    (("gpu.energy_j",), lambda nvml, h: (nvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,)),
    (("gpu.sm_clock_mhz",), lambda nvml, h: (float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),)),
    (("gpu.sm_clock_max_mhz",), lambda nvml, h: (float(nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM)),)),
    (("gpu.mem_clock_mhz",), lambda nvml, h: (float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM)),)),
    (("gpu.temp_c",), lambda nvml, h: (float(nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),)),
)
ALL_METRICS = tuple(metric for metrics, _ in READERS for metric in metrics)


class GpuProbe:
    """Opens the driver at its first use, in the agent's process only. What a GPU does not support is not asked again."""

    name = "gpu"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._nvml: Any = None
        self._handles: dict[int, Any] = {}
        self._devices: tuple[GpuDevice, ...] = ()
        self._off: set[tuple[int, tuple[str, ...]]] = set()
        self._opened = False
        self._gaps = GapsOnce()
        self.driver_version: str | None = None
        self.cuda_version: str | None = None  # the newest CUDA this driver can run, not the one in use

    def devices(self) -> tuple[GpuDevice, ...]:
        """What does not change; empty without a driver, and `gap` then says why."""
        self._open()
        return self._devices

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        self._open()
        samples: list[Sample] = []
        for index in list(self._handles):
            self._sample_gpu(index, samples)
        return Reading(tuple(samples), self._gaps.take())

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        nvml = open_driver(self._root)
        if isinstance(nvml, ProbeGap):
            self._report(nvml)
            return
        self._nvml = nvml
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as e:
            self._report(gap_of(error_name(nvml, e), "gpu.*", "host"))
            return
        if count == 0:
            self._report(
                ProbeGap("gpu.*", "host", "the NVIDIA driver sees no GPU", "in a container start it with --gpus all")
            )
        self.driver_version = self._ask(nvml.nvmlSystemGetDriverVersion)
        cuda = self._ask(nvml.nvmlSystemGetCudaDriverVersion_v2)
        self.cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None
        self._devices = tuple(device for index in range(count) if (device := self._describe(index)) is not None)

    def _describe(self, index: int) -> GpuDevice | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as e:
            self._give_up(index, error_name(nvml, e))
            return None
        self._handles[index] = handle
        memory = self._ask(_memory, nvml, handle)
        pci = self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        return GpuDevice(
            index=index,
            name=self._ask(nvml.nvmlDeviceGetName, handle) or "unknown GPU",
            uuid=self._ask(nvml.nvmlDeviceGetUUID, handle) or "",
            pci_bus_id=pci.busId if pci else "",
            mem_total_bytes=int(memory[1]) if memory else None,
            mig_uuids=self._mig_uuids(handle),
        )

    def _mig_uuids(self, handle: Any) -> tuple[str, ...]:
        nvml = self._nvml
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if not mode or not mode[0]:
            return ()
        slots = range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)
        instances = [self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot) for slot in slots]
        uuids = [self._ask(nvml.nvmlDeviceGetUUID, instance) for instance in instances if instance is not None]
        return tuple(uuid for uuid in uuids if uuid)

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A static fact, or None: its absence is no measurement that a rule could miss."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def _sample_gpu(self, index: int, samples: list[Sample]) -> None:
        handle, scope = self._handles[index], f"gpu:{index}"
        for metrics, read in READERS:
            if (index, metrics) in self._off:
                continue
            try:
                values = read(self._nvml, handle)
            except self._nvml.NVMLError as e:
                name = error_name(self._nvml, e)
                if name in GPU_GONE:
                    self._give_up(index, name)
                    return
                if name in LASTING:
                    self._off.add((index, metrics))
                for metric in metrics:
                    self._report(gap_of(name, metric, scope))
            else:
                samples += [Sample(metric, scope, value) for metric, value in zip(metrics, values, strict=True)]

    def _give_up(self, index: int, name: str) -> None:
        self._handles.pop(index, None)
        for metric in ALL_METRICS:
            gap = gap_of(name, metric, f"gpu:{index}")
            # Its own key: a GPU lost in mid-run is told even where this metric had a lesser gap before.
            self._gaps.add(metric, gap.scope, gap.reason, gap.hint, key=(gap.scope, name))

    def _report(self, gap: ProbeGap) -> None:
        self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint)
