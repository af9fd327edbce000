"""Runs the host probes on fixed deadlines and isolates their failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupProbe
from rn50_advisor.probes.host.cgroup.io_limits import IoLimitsProbe
from rn50_advisor.probes.host.cgroup.provider_limits import AllowancesProbe
from rn50_advisor.probes.host.cpu_probe import CpuProbe
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.memory_probe import MemoryProbe
from rn50_advisor.probes.host.network_probe import NetworkProbe
from rn50_advisor.probes.host.process.process_probe import ProcessesProbe, ProcessTree
from rn50_advisor.probes.host.storage.data_files import DataFilesProbe
from rn50_advisor.probes.host.storage.disk_probe import DiskProbe
from rn50_advisor.probes.host.storage.nfs_probe import NfsProbe
from rn50_advisor.probes.host.target import Probe, Seldom, Target

FAILURES_MAX = 3  # in a row; a probe may fail once because a process was dying


@dataclass(frozen=True, slots=True)
class Tick:
    """All samples and gaps of one deadline. `t_ns` is the time of every sample."""

    t_ns: int
    samples: tuple[Sample, ...]
    gaps: tuple[ProbeGap, ...]


def host_probes(
    root: Path = Path("/"), *, tree: ProcessTree | None = None, job_pid: int | None = None
) -> tuple[Probe, ...]:
    """All host probes. Samples carry the tick's start time, so counters that need exact rates per second are read first."""
    return (
        DiskProbe(root),
        NfsProbe(root),
        NetworkProbe(root),
        CgroupProbe(root),
        CpuProbe(root, job_pid=job_pid, tree=tree),
        IoLimitsProbe(root),
        AllowancesProbe(root),
        MemoryProbe(root),
        ProcessesProbe(root, tree=tree),
        DataFilesProbe(root),
        GpuProbe(root, tree=tree),
    )


class Sampler:
    """Samples at fixed deadlines. It never sleeps: the agent asks `wait_s()` for the time left and may call `poll` at any time.

    Deadlines are the start plus whole periods. A late call gets one tick for all missed deadlines.
    """

    def __init__(
        self, probes: Sequence[Probe], period_s: float = 1.0, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._probes = list(probes)
        self._period_ns = round(period_s * 1e9)
        self._clock = clock
        self._deadline_ns = clock()
        self._failures: dict[str, int] = {}
        self._gaps: list[ProbeGap] = []

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the probes that still run."""
        return tuple(probe.name for probe in self._probes)

    def wait_s(self) -> float:
        """Seconds until the next deadline; 0 if it is due."""
        return max(0, self._deadline_ns - self._clock()) / 1e9

    def poll(self, targets: Sequence[Target]) -> Tick | None:
        """Reads every probe if a deadline has passed, else returns None."""
        now_ns = self._clock()
        if now_ns < self._deadline_ns:
            return None
        passed = (now_ns - self._deadline_ns) // self._period_ns
        self._deadline_ns += (passed + 1) * self._period_ns
        return self._sample(targets)

    def sample_now(self, targets: Sequence[Target]) -> Tick:
        """Reads everything outside the schedule, for the last tick of a run."""
        for probe in self._probes:
            if isinstance(probe, Seldom):
                probe.read_all()
        return self._sample(targets)

    def _sample(self, targets: Sequence[Target]) -> Tick:
        now_ns = self._clock()
        samples: list[Sample] = []
        for probe in list(self._probes):
            samples += self._run(probe, now_ns, targets)
        gaps, self._gaps = tuple(self._gaps), []
        return Tick(now_ns, tuple(samples), gaps)

    def drop(self, name: str) -> bool:
        """Stops a probe for good; the next tick reports the gap. False if the probe was not running."""
        return self._drop(
            name, "switched off to keep the advisor within its overhead budget", "raise --overhead-budget"
        )

    def _run(self, probe: Probe, now_ns: int, targets: Sequence[Target]) -> tuple[Sample, ...]:
        try:
            reading = probe.sample(now_ns, targets)
        except Exception as e:  # noqa: BLE001 - one broken probe must not take the others or the recording along
            self._fail(probe.name, e)
            return ()
        self._failures.pop(probe.name, None)
        self._gaps += reading.gaps
        return reading.samples

    def _fail(self, name: str, error: Exception) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        reason = f"the probe failed: {type(error).__name__}: {error}"
        if failures >= FAILURES_MAX:
            self._drop(
                name,
                f"dropped after {failures} failures in a row: {type(error).__name__}: {error}",
                "please report this",
            )
        elif failures == 1:
            self._gaps.append(ProbeGap(f"{name}.*", "host", reason, "it is tried again at the next tick"))

    def _drop(self, name: str, reason: str, hint: str) -> bool:
        kept = [probe for probe in self._probes if probe.name != name]
        dropped = len(kept) < len(self._probes)
        self._probes = kept
        if dropped:
            self._gaps.append(ProbeGap(f"{name}.*", "host", reason, hint))
        return dropped
