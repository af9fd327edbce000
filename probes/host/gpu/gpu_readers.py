"""Periodic GPU readings and their queries: driver calls, and field values that one call fetches together.

Every tick makes the fast queries (microseconds each). The others run every `SLOW_NS`: limits that rarely change, error counters, links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.probes.host.gpu.gpu_devices import MAX_LINKS, GpuDevice, mig_handles
from rn50_advisor.probes.host.gpu.nvml import ALL_LINKS, LASTING, Field, code_name

SLOW_NS = 5_000_000_000
_KIB, _NS = 1024.0, 1e-9
_VIOLATION_POWER, _VIOLATION_THERMAL = 0, 1  # nvmlPerfPolicyType_t
_LINK_ERRORS, _LINK_RECOVERIES = 208, 215  # field values of NVLink 5, link by link
_NO_LINK = LASTING | {
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_FOUND",
}  # answers for a link that this GPU lacks

Values = tuple[float, ...]
Read = Callable[[Any, Any], Values]


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One driver query of a GPU and the metrics of its answer."""

    metrics: tuple[str, ...]
    read: Read
    slow: bool = False


@dataclass(frozen=True, slots=True)
class FieldMetric:
    """A field value and its metric, which may be the sum of several fields.

    `instead`: the query for drivers and GPUs that do not know the field; `silent`: an unknown field is no gap.
    """

    field: Field
    metric: str
    unit: float = 1.0
    slow: bool = False
    instead: DriverCall | None = None
    silent: bool = False


def _memory(nvml: Any, handle: Any) -> Values:
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)  # v1 counts the driver's own memory as used
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float(memory.used), float(memory.total)


def _reasons(nvml: Any, handle: Any) -> Values:
    try:
        return (float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),)
    except nvml.NVMLError_FunctionNotFound:
        return (float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),)


def _pcie(nvml: Any, handle: Any) -> Values:
    return float(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)), float(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))


def pcie_throughput(nvml: Any, handle: Any) -> Values:
    """Received and sent bytes per second. Each of the two measures for 20 ms: too slow for every tick."""
    return tuple(1000.0 * nvml.nvmlDeviceGetPcieThroughput(handle, counter) for counter in (1, 0))


def violation(policy: int) -> Read:
    return lambda nvml, handle: (nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime * _NS,)


CALLS: tuple[DriverCall, ...] = (
    DriverCall(("gpu.util_pct",), lambda nvml, h: (float(nvml.nvmlDeviceGetUtilizationRates(h).gpu),)),
    DriverCall(("gpu.mem_used_bytes", "gpu.mem_total_bytes"), _memory),
    DriverCall(("gpu.power_w",), lambda nvml, h: (nvml.nvmlDeviceGetPowerUsage(h) / 1e3,)),
    DriverCall(("gpu.energy_j",), lambda nvml, h: (nvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,)),
    DriverCall(("gpu.sm_clock_mhz",), lambda nvml, h: (float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),)),
    DriverCall(("gpu.mem_clock_mhz",), lambda nvml, h: (float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM)),)),
    DriverCall(("gpu.temp_c",), lambda nvml, h: (float(nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),)),
    DriverCall(("gpu.clock_reasons",), _reasons),
    DriverCall(("gpu.pcie_gen", "gpu.pcie_width"), _pcie),
    DriverCall(("gpu.power_limit_w",), lambda nvml, h: (nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1e3,), slow=True),
    DriverCall(
        ("gpu.sm_clock_max_mhz",),
        lambda nvml, h: (float(nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM)),),
        slow=True,
    ),
)
# One time for all that fields 269 to 271 split into three.
THERMAL = DriverCall(("gpu.thermal_s",), violation(_VIOLATION_THERMAL))
CAP = DriverCall(("gpu.power_cap_s",), violation(_VIOLATION_POWER))
# Takes 40 ms: the GPUs take turns.
THROUGHPUT = DriverCall(("gpu.pcie_rx_bytes_per_s", "gpu.pcie_tx_bytes_per_s"), pcie_throughput, slow=True)
GPM_METRICS: dict[int, tuple[str, float]] = {
    2: ("gpu.sm_active_pct", 1.0),
    3: ("gpu.sm_occupancy_pct", 1.0),
    5: ("gpu.tensor_active_pct", 1.0),
    10: ("gpu.dram_active_pct", 1.0),
    20: ("gpu.pcie_tx_bytes_per_s", _KIB**2),
    21: ("gpu.pcie_rx_bytes_per_s", _KIB**2),
    60: ("gpu.nvlink_rx_bytes_per_s", _KIB**2),
    61: ("gpu.nvlink_tx_bytes_per_s", _KIB**2),
}

_EVERY_GPU = (
    FieldMetric(74, "gpu.power_cap_s", _NS, instead=CAP),
    FieldMetric(269, "gpu.sw_thermal_s", _NS, instead=THERMAL),
    FieldMetric(270, "gpu.hw_thermal_s", _NS, instead=THERMAL),
    FieldMetric(271, "gpu.power_brake_s", _NS),
    FieldMetric(198, "gpu.pcie_rx_bytes", instead=THROUGHPUT),
    FieldMetric(197, "gpu.pcie_tx_bytes", instead=THROUGHPUT),
    FieldMetric(94, "gpu.pcie_replays", slow=True),
)
_WITH_ECC = (
    FieldMetric(3, "gpu.ecc_corrected", slow=True),
    FieldMetric(4, "gpu.ecc_uncorrected", slow=True),
    FieldMetric(5, "gpu.ecc_lifetime_corrected", slow=True),
    FieldMetric(6, "gpu.ecc_lifetime_uncorrected", slow=True),
)
_SOUNDNESS = (
    FieldMetric(142, "gpu.rows_remapped_corrected", slow=True),
    FieldMetric(143, "gpu.rows_remapped_uncorrected", slow=True),
    FieldMetric(144, "gpu.row_remap_pending", slow=True),
    FieldMetric(145, "gpu.row_remap_failed", slow=True),
    FieldMetric(230, "gpu.recovery_action", slow=True),
)
_ALL_ERRORS = DriverCall(("gpu.nvlink_crc_errors",), lambda nvml, h: link_sum(nvml, h, _LINK_ERRORS), slow=True)
_ALL_RECOVERIES = DriverCall(("gpu.nvlink_recoveries",), lambda nvml, h: link_sum(nvml, h, _LINK_RECOVERIES), slow=True)
_WITH_LINKS = (
    FieldMetric((138, ALL_LINKS), "gpu.nvlink_tx_bytes", _KIB),
    FieldMetric((139, ALL_LINKS), "gpu.nvlink_rx_bytes", _KIB),
    FieldMetric(38, "gpu.nvlink_crc_errors", slow=True, instead=_ALL_ERRORS),
    FieldMetric(45, "gpu.nvlink_crc_errors", slow=True, instead=_ALL_ERRORS),
    FieldMetric(52, "gpu.nvlink_recoveries", slow=True, instead=_ALL_RECOVERIES),
    FieldMetric(59, "gpu.nvlink_recoveries", slow=True, instead=_ALL_RECOVERIES),
)
# Metrics without a query here: their own watchers report them.
WATCHED = ("gpu.xids", "gpu.xid", "gpu.lost", "gpu.own_processes", "gpu.foreign_processes", "gpu.foreign_mem_bytes")
FOREIGN_SM = "gpu.foreign_sm_pct"
PROBE_COST = "gpu.probe_s"


def fields_for(device: GpuDevice) -> tuple[FieldMetric, ...]:
    """Fields to query. Without ECC or NVLink a GPU has no gap for them: the field is not queried, or its absence not reported."""
    return (
        *_EVERY_GPU,
        *(replace(field, silent=device.ecc is False) for field in _SOUNDNESS),
        *(_WITH_ECC if device.ecc is not False else ()),
        *(_WITH_LINKS if device.nvlinks else ()),
    )


def calls_for(device: GpuDevice) -> tuple[DriverCall, ...]:
    if not device.nvlinks:
        return CALLS
    links = range(device.nvlinks)
    return (*CALLS, DriverCall(("gpu.nvlinks_active",), lambda nvml, h: _active(nvml, h, links), slow=True))


def link_sum(nvml: Any, handle: Any, field: int) -> Values:
    """Sum of a per-link counter. Raises NVMLError, also if an existing link does not answer."""
    answers = nvml.nvmlDeviceGetFieldValues(handle, [(field, link) for link in range(MAX_LINKS)])
    known = [answer.value.ullVal for answer in answers if answer.nvmlReturn == 0]
    for code in {answer.nvmlReturn for answer in answers} - {0}:
        if code_name(nvml, code) not in _NO_LINK:
            raise nvml.NVMLError(code)
    if not known:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return (float(sum(known)),)


def _active(nvml: Any, handle: Any, links: range) -> Values:
    return (float(sum(nvml.nvmlDeviceGetNvLinkState(handle, link) == 1 for link in links)),)


def mig_samples(nvml: Any, index: int, handle: Any) -> list[Sample]:
    """Memory of each MIG instance; an instance has only its own memory."""
    found = []
    for number, instance in enumerate(mig_handles(nvml, handle)):
        used, total = _memory(nvml, instance)
        scope = f"mig:{index}/{number}"
        found += [Sample("gpu.mem_used_bytes", scope, used), Sample("gpu.mem_total_bytes", scope, total)]
    return found
