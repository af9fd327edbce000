"""The job's GPUs as the driver reports them: their ranks, clocks, limits, links, and other processes on them."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.gpu_gaps import add_missing_reasons
from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuPath
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_CLOCK_MHZ,
    GPU_CLOCK_SET_SHARE,
    GPU_DRAM_ACTIVE_SHARE,
    GPU_FOREIGN_MEM_MB,
    GPU_FOREIGN_PROCESSES,
    GPU_FOREIGN_SM_SHARE,
    GPU_HW_THERMAL_SHARE,
    GPU_IDLE,
    GPU_IDLE_BESIDE,
    GPU_JOULES_PER_SAMPLE,
    GPU_MEM_USED_MB,
    GPU_NEAR_CPU_SHARE,
    GPU_NVLINK_MB_PER_S,
    GPU_PAIRS,
    GPU_PCIE_GEN,
    GPU_PCIE_RX_MB_PER_S,
    GPU_PCIE_WIDTH,
    GPU_PEERS_CLOCK_MHZ,
    GPU_POWER_BRAKE_SHARE,
    GPU_POWER_CAPPED_SHARE,
    GPU_POWER_LIMIT_W,
    GPU_POWER_W,
    GPU_SM_ACTIVE_SHARE,
    GPU_SW_THERMAL_SHARE,
    GPU_TEMP_C,
    GPU_TENSOR_ACTIVE_SHARE,
    GPU_THROTTLED_SHARE,
    GPU_UTIL_SHARE,
    GPU_WATTS,
)
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.advisor.model.statistics import others_median

# Utilisation from which a reading counts as under load. Below it, clocks and links are in power-saving states.
_LOADED_PCT = 10.0
_HELD_SHARE = 0.1  # of the memory; the driver itself uses less
_LOADED_READINGS = 3  # a single reading of a link may fall into a change of its state
_MB = 1e6
_THROTTLES = {
    GPU_SW_THERMAL_SHARE: "gpu.sw_thermal_s",
    GPU_HW_THERMAL_SHARE: "gpu.hw_thermal_s",
    GPU_POWER_BRAKE_SHARE: "gpu.power_brake_s",
}
_COUNTED = {
    GPU_SM_ACTIVE_SHARE: "gpu.sm_active_pct",
    GPU_TENSOR_ACTIVE_SHARE: "gpu.tensor_active_pct",
    GPU_DRAM_ACTIVE_SHARE: "gpu.dram_active_pct",
    GPU_UTIL_SHARE: "gpu.util_pct",
}
_COUNTERS_MIN = 2  # the power brake's counter alone cannot rule out thermal throttling
# Clock event reasons, for GPUs that count no times: thermal by software, thermal by hardware, power brake; and the power cap.
_HELD_BITS, _CAPPED_BIT = 0x20 | 0x40 | 0x80, 0x4
# "GPU clocks are limited by current setting of applications clocks" (NVML API reference, NvmlClocksEventReasons); there is no time of it.
_SET_BIT = 0x2
_REASON_READINGS_MIN, _REASON_HITS_MIN = 5, 3
_EXPECTED = (
    GPU_THROTTLED_SHARE,
    GPU_POWER_CAPPED_SHARE,
    GPU_CLOCK_SET_SHARE,
    GPU_CLOCK_MHZ,
    GPU_PCIE_WIDTH,
    GPU_FOREIGN_PROCESSES,
)


class Covered(Window):
    """A window that returns None for series that do not cover it."""

    def rate(self, metric: str, scope: str) -> float | None:
        return Window.rate(self, metric, scope) if self.covers(metric, scope) else None

    def growth(self, metric: str, scope: str) -> float | None:
        return Window.growth(self, metric, scope) if self.covers(metric, scope) else None

    def level(self, metric: str, scope: str) -> float | None:
        return Window.level(self, metric, scope) if self.covers(metric, scope) else None


def gpu_values(
    window: Window,
    gpus: tuple[Gpu, ...],
    samples_per_s: float | None = None,
    *,
    of_load: bool = False,
) -> Measured:
    """Measures of the job's GPUs over the steady steps; for unused GPUs only whether they were idle.

    Series that cover less than half of the steps are left out. `of_load`: throttling is a share of the time under load, for GPUs that have
    work only part of the time.
    """
    values = Measured()
    window = Covered(window.recording, window.start_ns, window.end_ns)
    used, others = (tuple(gpu for gpu in gpus if bool(gpu.ranks) == some) for some in (True, False))
    for gpu in used:
        _time_values(window, gpu, values, of_load=of_load)
        _link_values(window, gpu, values)
        _foreign_values(window, gpu, values)
    for gpu in used:
        _peers_clock(gpu, used, values)
        _near_cpus(window.recording, gpu, values)
    for gpu in others:
        if (idle := _idles(window, f"gpu:{gpu.index}")) is not None:
            values[GPU_IDLE, gpu.index] = float(idle)
    # the power of a shared GPU cannot be assigned to this job's samples
    shared = any(values.get((GPU_FOREIGN_PROCESSES, gpu.index)) for gpu in used)
    values.update(energy_values(window, gpus, None if shared else samples_per_s))
    add_missing_reasons(window.recording, gpus, {**dict.fromkeys(_EXPECTED, used), GPU_IDLE: others}, values)
    return values


def idle_beside(recording: Recording, gpus: tuple[Gpu, ...], values: Measured) -> Measured:
    """Number of idle GPUs beside a job that trains on none. A GPU whose memory is in use does not count as idle."""
    if trains_on_gpu(recording) or any(gpu.ranks for gpu in gpus):
        return Measured()
    seen = [idle for gpu in gpus if (idle := values.get((GPU_IDLE, gpu.index))) is not None]
    return Measured({(GPU_IDLE_BESIDE, JOB): sum(seen)} if seen else {})


def _idles(window: Window, scope: str) -> bool | None:
    use, held, total = (
        window.level(f"gpu.{name}", scope) for name in ("util_pct", "mem_used_bytes", "mem_total_bytes")
    )
    if use is None or held is None or not total:
        return None
    return use < _LOADED_PCT and held < _HELD_SHARE * total


def path_values(gpus: tuple[Gpu, ...], paths: tuple[GpuPath, ...]) -> Measured:
    """Measures of GPU-to-GPU paths. A single GPU has no pairs, which is a known value; pairs without a reading are unknown."""
    used = {gpu.index for gpu in gpus if gpu.ranks}
    known = [p for p in paths if p.a in used and p.b in used and p.path != "?"]
    return Measured({(GPU_PAIRS, JOB): float(len(known))} if known or len(used) == 1 else {})


def _time_values(window: Window, gpu: Gpu, values: Measured, *, of_load: bool) -> None:
    scope = f"gpu:{gpu.index}"
    rate = functools.partial(_rate_under_load, window) if of_load else window.rate
    shares = {name: rate(metric, scope) for name, metric in _THROTTLES.items()}
    split = [share for share in shares.values() if share is not None]
    # The three can overlap: the driver lowers clocks while the board has halved them.
    whole = rate("gpu.thermal_s", scope)
    if whole is None and len(split) < _COUNTERS_MIN:
        whole = _seen_share(window, scope, _HELD_BITS)
    capped = rate("gpu.power_cap_s", scope)
    thermal = [*split, whole] if whole is not None else split
    held = window.level("gpu.mem_used_bytes", scope)
    found: dict[GpuMeasure, float | None] = {
        **shares,
        GPU_THROTTLED_SHARE: max(thermal) if thermal and (len(split) >= _COUNTERS_MIN or whole is not None) else None,
        GPU_POWER_CAPPED_SHARE: _seen_share(window, scope, _CAPPED_BIT) if capped is None else capped,
        GPU_CLOCK_SET_SHARE: _seen_share(window, scope, _SET_BIT),
        GPU_POWER_W: window.level("gpu.power_w", scope),
        GPU_POWER_LIMIT_W: window.level("gpu.power_limit_w", scope),
        GPU_MEM_USED_MB: None if held is None else held / _MB,
    }
    for name, metric in _COUNTED.items():
        percent = window.level(metric, scope)
        found[name] = None if percent is None else percent / 100
    clock, temperature = _loaded(window, "gpu.sm_clock_mhz", scope), _loaded(window, "gpu.temp_c", scope)
    if clock is not None and clock.size:
        found[GPU_CLOCK_MHZ] = float(clock.mean())
    if temperature is not None and temperature.size:
        found[GPU_TEMP_C] = float(temperature.max())
    for measure, value in found.items():
        if value is not None:
            values[measure, gpu.index] = min(value, 1.0) if measure.endswith("_share") else value


def _rate_under_load(window: Window, metric: str, scope: str) -> float | None:
    """Growth of a counter per second of load; per second of wall time if load is unknown (MIG). None if there was hardly any load."""
    rate, use = window.rate(metric, scope), _within(window, "gpu.util_pct", scope)
    if rate is None or use is None:
        return rate
    loaded = int(np.count_nonzero(use.value >= _LOADED_PCT))
    return rate * use.value.size / loaded if loaded >= _LOADED_READINGS else None


def _seen_share(window: Window, scope: str, bits: int) -> float | None:
    """Share of readings under load with one of these reasons, where no time is counted. One or two such readings count as 0."""
    reasons = _loaded(window, "gpu.clock_reasons", scope)
    if reasons is None or reasons.size < _REASON_READINGS_MIN:
        return None
    hits = int(np.count_nonzero(reasons.astype(np.int64) & bits))
    return hits / reasons.size if hits >= _REASON_HITS_MIN else 0.0


def _link_values(window: Window, gpu: Gpu, values: Measured) -> None:
    """The PCIe link under load; an idle GPU's link falls back to the first generation.

    If its load is unknown, readings below the best may all come from idle times: only the best is used.
    """
    scope = f"gpu:{gpu.index}"
    blind = _within(window, "gpu.util_pct", scope) is None
    for measure, best in ((GPU_PCIE_GEN, gpu.pcie_gen_max), (GPU_PCIE_WIDTH, gpu.pcie_width_max)):
        readings = _loaded(window, measure.name, scope)
        if readings is not None and blind:
            readings = readings[readings >= (best or np.inf)]
        if readings is not None and readings.size >= _LOADED_READINGS:
            values[measure, gpu.index] = float(np.median(readings))
    if blind and (GPU_PCIE_GEN, gpu.index) not in values:
        values.pop((GPU_PCIE_WIDTH, gpu.index), None)  # a width without a generation says nothing
    received = window.level(
        "gpu.pcie_rx_bytes_per_s", scope
    )  # GPM's, where available: according to nvml.h the counter may wrap
    if received is None:
        received = window.rate("gpu.pcie_rx_bytes", scope)
    over_links = window.rate("gpu.nvlink_rx_bytes", scope)
    if over_links is None:
        over_links = window.level("gpu.nvlink_rx_bytes_per_s", scope)
    if received is not None:
        values[GPU_PCIE_RX_MB_PER_S, gpu.index] = received / _MB
    if over_links is not None:
        values[GPU_NVLINK_MB_PER_S, gpu.index] = over_links / _MB


def _foreign_values(window: Window, gpu: Gpu, values: Measured) -> None:
    scope = f"gpu:{gpu.index}"
    count, used = (window.recording.samples.get((f"gpu.foreign_{n}", scope)) for n in ("processes", "mem_bytes"))
    if count is None or not window.covers("gpu.foreign_processes", scope):
        return
    values[GPU_FOREIGN_PROCESSES, gpu.index] = float(np.median(count.value))
    if used is not None and used.value.size:
        values[GPU_FOREIGN_MEM_MB, gpu.index] = float(used.value.max()) / _MB
    share = window.level("gpu.foreign_sm_pct", scope)
    if share is not None:
        values[GPU_FOREIGN_SM_SHARE, gpu.index] = share / 100


def _peers_clock(gpu: Gpu, used: tuple[Gpu, ...], values: Measured) -> None:
    clocks = {
        other.index: values[GPU_CLOCK_MHZ, other.index]
        for other in used
        if other.name == gpu.name and (GPU_CLOCK_MHZ, other.index) in values
    }
    if len(clocks) > 1 and gpu.index in clocks:
        values[GPU_PEERS_CLOCK_MHZ, gpu.index] = others_median(clocks, gpu.index)


def _near_cpus(recording: Recording, gpu: Gpu, values: Measured) -> None:
    """Share of each rank's allowed CPUs that are near its GPU: 1 on a host with one NUMA node, absent if the topology is unknown."""
    nodes = recording.meta.environment.get("numa_nodes") or {}
    several = sum(bool(cpus) for cpus in nodes.values()) > 1
    processes = process_by_rank(recording.processes)
    for rank in gpu.ranks:
        allowed = recording.facts.get(processes[rank].pid, {}).get("cpus_allowed")
        if nodes and not several:
            values[GPU_NEAR_CPU_SHARE, rank] = 1.0
        elif allowed and gpu.cpus and several:
            values[GPU_NEAR_CPU_SHARE, rank] = len(gpu.cpus & set(allowed)) / len(allowed)


def _loaded(window: Window, metric: str, scope: str) -> NDArray[np.float64] | None:
    """Readings taken while the GPU had work; all readings if its load is unknown (MIG)."""
    series = _within(window, metric, scope)
    if series is None:
        return None
    use = _within(window, "gpu.util_pct", scope)
    if use is None:
        return series.value
    at = np.clip(np.searchsorted(use.t_ns, series.t_ns), 0, use.t_ns.size - 1)
    return series.value[use.value[at] >= _LOADED_PCT]


def _within(window: Window, metric: str, scope: str) -> Series | None:
    series = window.recording.samples.get((metric, scope))
    if series is None or not window.covers(metric, scope):
        return None
    inside = (series.t_ns >= window.start_ns) & (series.t_ns <= window.end_ns)
    return Series(series.t_ns[inside], series.value[inside]) if inside.any() else None


# Power of the GPUs that train, and energy per sample.
def energy_values(window: Window, gpus: tuple[Gpu, ...], samples_per_s: float | None) -> Measured:
    """Empty unless the power of every training GPU is known. It is unknown for a MIG instance and for a rank whose GPU is unknown."""
    recording, used = window.recording, [gpu for gpu in gpus if gpu.ranks and not gpu.mig]
    ranks = {
        rank for rank, p in process_by_rank(recording.processes).items() if recording.facts.get(p.pid, {}).get("cuda")
    }
    watts = [_watts(window, f"gpu:{gpu.index}") for gpu in used]
    known = [each for each in watts if each is not None]
    if not known or len(known) < len(watts) or ranks - {rank for gpu in used for rank in gpu.ranks}:
        return Measured()
    values = Measured({(GPU_WATTS, JOB): sum(known)})
    if samples_per_s:
        values[GPU_JOULES_PER_SAMPLE, JOB] = sum(known) / samples_per_s
    return values


def _watts(window: Window, scope: str) -> float | None:
    """Mean power from the energy counter. GPUs before Volta have none: there, from power readings once a second."""
    counted = window.rate("gpu.energy_j", scope)
    return window.level("gpu.power_w", scope) if counted is None else counted
