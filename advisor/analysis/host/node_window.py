"""Measures the node during the steady steps (cores, quota, steal) and fills the screen's host strip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_AFFINITY_CORES,
    CPU_ALLOWED_CORES,
    CPU_GIVEN_CORES,
    CPU_HELPER_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_HOST_CORES,
    CPU_JOB_CORES,
    CPU_OTHER_CORES,
    CPU_STEAL_SHARE,
    QUOTA_CORES,
    QUOTA_THROTTLED_S_PER_S,
    QUOTA_THROTTLED_SHARE,
    SHM_TOTAL_MB,
    SHM_USED_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure, RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import NODE_PIDS, Process, Recording, Series
from rn50_advisor.advisor.model.report import HostStrip
from rn50_advisor.advisor.model.statistics import increase
from rn50_advisor.probes.documents.rank_documents import RankFacts

_COVERED_SHARE_MIN = 0.5
_HELPER_CORES_MIN = 0.05  # launchers and trackers use less
_SPARSE_NS = 10_000_000_000  # some probes read only every five seconds
_RECENT_NS = 5_000_000_000  # the strips show the last five seconds


@dataclass(frozen=True, slots=True)
class Window:
    """An interval of a recording that returns the growth of counters and the means of levels."""

    recording: Recording
    start_ns: int
    end_ns: int

    def rate(self, metric: str, scope: str) -> float | None:
        """Growth of a counter per second."""
        series = self.recording.samples.get((metric, scope))
        grown = increase(series.t_ns, series.value, self.start_ns, self.end_ns) if series else None
        return grown[0] / grown[1] if grown else None

    def growth(self, metric: str, scope: str) -> float | None:
        series = self.recording.samples.get((metric, scope))
        grown = increase(series.t_ns, series.value, self.start_ns, self.end_ns) if series else None
        return grown[0] if grown else None

    def level(self, metric: str, scope: str) -> float | None:
        """Mean of a level in the interval. Without a reading there, the last one recorded: limits and sizes hardly change."""
        series = self.recording.samples.get((metric, scope))
        if series is None or series.value.size == 0:
            return None
        inside = self._inside(series)
        return float(series.value[inside].mean()) if inside.any() else float(series.value[-1])

    def _inside(self, series: Series) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (series.t_ns >= self.start_ns) & (
            series.t_ns <= self.end_ns
        )
        return inside

    def covers(self, metric: str, scope: str) -> bool:
        """True if readings cover at least half of the interval. A probe that stopped early says nothing about the rest."""
        series = self.recording.samples.get((metric, scope))
        if series is None or series.value.size == 0:
            return False
        seen_ns = min(int(series.t_ns[-1]), self.end_ns) - max(int(series.t_ns[0]), self.start_ns)
        return seen_ns + _SPARSE_NS >= _COVERED_SHARE_MIN * (self.end_ns - self.start_ns)

    def scopes(self, metric: str) -> list[str]:
        return sorted(scope for name, scope in self.recording.samples if name == metric)


def cpu_values(window: Window) -> dict[JobMeasure, float]:
    """The job's and the host's cores over the window. Measures that were not sampled are absent."""
    found: dict[JobMeasure, float | None] = {
        CPU_ALLOWED_CORES: window.level("cpu.allowed_cores", "job"),
        CPU_GIVEN_CORES: window.level("cpu.given_cores", "job"),
        CPU_HOST_CORES: window.level("cpu.cores", "host"),
        CPU_AFFINITY_CORES: _affinity_cores(window.recording),
        CPU_JOB_CORES: window.rate("job.cpu_s", "job"),
        CPU_HOST_BUSY_CORES: window.rate("cpu.busy_s", "host"),
    }
    busy, job = found[CPU_HOST_BUSY_CORES], found[CPU_JOB_CORES]
    found[CPU_OTHER_CORES] = None if busy is None or job is None else max(0.0, busy - job)
    helpers = helper_cores(window)
    found[CPU_HELPER_CORES] = sum(helpers.values()) if helpers else None
    parts = [window.rate(f"cpu.{name}_s", "host") for name in ("busy", "idle", "iowait", "steal")]
    steal = parts[3]
    total = sum(part for part in parts if part is not None)
    found[CPU_STEAL_SHARE] = None if steal is None or total <= 0 else steal / total
    return {measure: value for measure, value in found.items() if value is not None}


def helper_cores(window: Window) -> dict[str, float]:
    """Cores used by processes of the job that are neither rank nor worker, by command. Leaves out processes that hardly compute.

    In a job on several hosts, only processes of the host that the host's samples come from.
    """
    found: dict[str, float] = {}
    seconds = max((window.end_ns - window.start_ns) / 1e9, 1e-9)
    node = window.recording.shown_node
    others = {p.pid: p for p in window.recording.processes if p.role == "other"}  # a PID may have been reused
    for pid, process in others.items():
        if node is not None and pid // NODE_PIDS != node.number:
            continue
        scope = f"pid:{pid}"
        grown, pace = window.growth("proc.cpu_s", scope) or 0.0, window.rate("proc.cpu_s", scope) or 0.0
        # a process may live only part of the time and be read a little beyond the window
        cores = min(pace, grown / seconds)
        if cores >= _HELPER_CORES_MIN:
            found[process.command] = found.get(process.command, 0.0) + cores
    return found


def helpers_beside(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[str, float]:
    """`helper_cores` over the steady steps."""
    if not steady:
        return {}
    starts, ends = zip(*((int(s.start_ns[0]), int(s.end_ns[-1])) for s in steady.values()), strict=True)
    return helper_cores(Window(recording, min(starts), max(ends)))


def _affinity_cores(recording: Recording) -> float | None:
    """Cores of this host that any of its ranks may run on; None if a rank did not report its own."""
    node, found = recording.shown_node, set()
    for rank, process in process_by_rank(recording.processes).items():
        if node is None or rank in node.ranks:
            allowed = recording.facts.get(process.pid, {}).get("cpus_allowed")
            if not allowed:
                return None
            found |= set(allowed)
    return float(len(found)) if found else None


def quota_values(window: Window, process: Process) -> dict[RankMeasure, float]:
    """The CPU quota that applies to a process: cores, share of throttled periods, seconds throttled per second.

    Without a quota the probe records a counter that stays at zero. Empty if the probe could not read the quota.
    """
    scope = f"pid:{process.pid}"
    cores = window.level("cgroup.quota_cores", scope)
    found: dict[RankMeasure, float] = {} if cores is None else {QUOTA_CORES: cores}
    periods, throttled = window.growth("cgroup.periods", scope), window.growth("cgroup.throttled_periods", scope)
    if periods and throttled is not None:
        found[QUOTA_THROTTLED_SHARE] = throttled / periods
    held = window.rate("cgroup.throttled_s", scope)
    if held is not None:
        found[QUOTA_THROTTLED_S_PER_S] = held
    return found


def host_values(window: Window) -> Measured:
    """Cores of the job and of its host, and the CPU quota of each rank."""
    found = Measured({(measure, JOB): value for measure, value in cpu_values(window).items()})
    for rank, process in process_by_rank(window.recording.processes).items():
        found.update({(measure, rank): value for measure, value in quota_values(window, process).items()})
    return found


def shared_memory_values(recording: Recording) -> Measured:
    """The highest use of /dev/shm. The peak counts, not the mean: a batch that does not fit kills its worker at once."""
    used, total = (recording.samples.get((f"mem.shm_{name}_bytes", "host")) for name in ("used", "total"))
    if used is None or total is None or used.value.size != total.value.size or not (total.value > 0).any():
        return Measured()
    share = np.divide(used.value, total.value, out=np.zeros_like(used.value), where=total.value > 0)
    fullest = int(share.argmax())
    return Measured(
        {(SHM_USED_SHARE, JOB): float(share[fullest]), (SHM_TOTAL_MB, JOB): float(total.value[fullest]) / 1e6}
    )


def host_strip(recording: Recording) -> HostStrip | None:
    """The node over the last recorded seconds."""
    end = recording.meta.last_ns
    now = Window(recording, end - _RECENT_NS, end)
    if not recording.samples:
        return None
    cpu = cpu_values(now)
    total, available = now.level("mem.total_bytes", "host"), now.level("mem.available_bytes", "host")
    held = [now.rate("cgroup.throttled_s", scope) for scope in now.scopes("cgroup.throttled_s")]
    reads = [now.rate("disk.read_bytes", scope) for scope in now.scopes("disk.read_bytes")]
    busy = [now.rate("disk.busy_s", scope) for scope in now.scopes("disk.busy_s")]
    sent = [now.rate("net.tx_bytes", scope) for scope in now.scopes("net.tx_bytes")]
    return HostStrip(
        name=recording.meta.host,
        cores=now.level("cpu.cores", "host"),
        allowed_cores=cpu.get(CPU_ALLOWED_CORES),
        busy_cores=cpu.get(CPU_HOST_BUSY_CORES),
        job_cores=cpu.get(CPU_JOB_CORES),
        steal_pct=_percent(cpu.get(CPU_STEAL_SHARE)),
        throttled_pct=_percent(_highest(held)),
        mem_used_bytes=None if total is None or available is None else total - available,
        mem_total_bytes=total,
        shm_used_bytes=now.level("mem.shm_used_bytes", "host"),
        shm_total_bytes=now.level("mem.shm_total_bytes", "host"),
        disk_read_mb_s=_mega(_sum(reads)),
        disk_busy_pct=_percent(_highest(busy)),
        net_mb_s=_mega(_sum(sent)),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _highest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def facts_by_rank(recording: Recording) -> Mapping[int, RankFacts]:
    """Facts of the process that is each rank; empty for a rank that has written none."""
    processes = process_by_rank(recording.processes)
    return {rank: recording.facts.get(process.pid, RankFacts()) for rank, process in processes.items()}


def process_by_rank(processes: tuple[Process, ...]) -> Mapping[int, Process]:
    """The last process of each rank: after an elastic restart, the new one."""
    return {
        p.rank: p for p in sorted(processes, key=lambda p: p.first_seen_ns) if p.role == "rank" and p.rank is not None
    }


def ranks_on_gpus(recording: Recording) -> set[int]:
    ranks = process_by_rank(recording.processes)
    return {rank for rank, process in ranks.items() if recording.facts.get(process.pid, {}).get("cuda")}
