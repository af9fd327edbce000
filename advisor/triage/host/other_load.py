"""Other load on the machine during the measurement: foreign CPU time on our cores, steal, throttling, disks."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rn50_advisor.probes.host.cgroup.cgroup_paths import membership_for, parse_membership
from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupReader, CgroupState
from rn50_advisor.probes.host.memory_probe import PRESSURE, parse_pressure_some
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, parse_cpu_list, read_text
from rn50_advisor.probes.host.storage.disk_probe import DiskProbe

_SCHED_IDLE = 5
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)


@dataclass(frozen=True, slots=True)
class Moment:
    """Counters at one instant, in seconds and bytes; None: unknown."""

    at_s: float
    own_cpu_s: float
    cpu_s: tuple[float, ...] | None  # of the allowed cores, as the fields of /proc/stat
    throttled_periods: float | None
    periods: float | None
    thermal_events: int | None
    pressure_s: dict[str, float]
    disk_bytes: dict[str, float]
    yielding_s: dict[int, float] = field(default_factory=dict)  # by pid, CPU seconds of processes that give way to us


@dataclass(frozen=True, slots=True)
class LoadInterval:
    """The change of all counters between two moments."""

    before: Moment
    after: Moment

    @property
    def seconds(self) -> float:
        return max(self.after.at_s - self.before.at_s, 1e-9)

    @property
    def own_cores(self) -> float:
        return (self.after.own_cpu_s - self.before.own_cpu_s) / self.seconds

    @property
    def others_cores(self) -> float | None:
        """Cores that others kept busy. Who gives way to us takes nothing from us and does not count."""
        grown = self._grown()
        if grown is None:
            return None
        busy = grown[_USER] + grown[_NICE] + grown[_SYSTEM] + grown[_IRQ] + grown[_SOFTIRQ]
        return max(0.0, (busy - self._yielded_s()) / self.seconds - self.own_cores)

    @property
    def steal_share(self) -> float | None:
        """Stolen share of the non-idle CPU time: an idle core loses nothing, and most cores are idle during a triage."""
        grown = self._grown()
        if grown is None:
            return None
        wanted = sum(grown) - grown[_IDLE] - grown[_IOWAIT]
        return grown[_STEAL] / wanted if wanted > 0 else None

    @property
    def throttled_share(self) -> float | None:
        """Share of CPU quota periods that ran out."""
        first, last = self.before, self.after
        if first.periods is None or last.periods is None or last.periods <= first.periods:
            return None
        return ((last.throttled_periods or 0.0) - (first.throttled_periods or 0.0)) / (last.periods - first.periods)

    @property
    def thermal_events(self) -> int | None:
        if self.before.thermal_events is None or self.after.thermal_events is None:
            return None
        return self.after.thermal_events - self.before.thermal_events

    def pressure_share(self, resource_name: str) -> float | None:
        first, last = (moment.pressure_s.get(resource_name) for moment in (self.before, self.after))
        return None if first is None or last is None else (last - first) / self.seconds

    def disk_bytes(self, disks: Collection[str]) -> float:
        """Read and written on these disks, by whomever."""
        return sum(self.after.disk_bytes.get(disk, 0.0) - self.before.disk_bytes.get(disk, 0.0) for disk in disks)

    def _yielded_s(self) -> float:
        before = self.before.yielding_s
        return sum(max(0.0, now - before.get(pid, 0.0)) for pid, now in self.after.yielding_s.items())

    def _grown(self) -> tuple[float, ...] | None:
        if self.before.cpu_s is None or self.after.cpu_s is None:
            return None
        return tuple(last - first for first, last in zip(self.before.cpu_s, self.after.cpu_s, strict=True))


class Watch:
    """Reads the counters; nothing runs in between. Our children count as ours once they have been waited for."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._reader = CgroupReader(root)
        self._disks = DiskProbe(root)
        self.cores = allowed_set(root)
        self.niced = os.getpriority(os.PRIO_PROCESS, 0) > 0

    def now(self) -> Moment:
        state = self.limits()
        cpu = state.cpu if state else None
        return Moment(
            at_s=time.monotonic(),
            own_cpu_s=_own_cpu_s(),
            cpu_s=cpu_times(read_text(self._root / "proc/stat") or "", self.cores),
            throttled_periods=cpu.throttled_periods if cpu else None,
            periods=cpu.periods if cpu and cpu.holder else None,
            thermal_events=_thermal_events(self._root, self.cores),
            pressure_s=_pressure(self._root),
            disk_bytes=self._disk_bytes(),
            yielding_s={} if self.niced else yielding_s(self._root),
        )

    def since(self, before: Moment) -> LoadInterval:
        return LoadInterval(before, self.now())

    def limits(self) -> CgroupState | None:
        self._reader.begin_tick(time.monotonic_ns())
        return self._reader.state_of(os.getpid())

    def _disk_bytes(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for sample in self._disks.sample(time.monotonic_ns(), ()).samples:
            if sample.metric in ("disk.read_bytes", "disk.write_bytes"):
                disk = sample.scope.removeprefix("disk:")
                found[disk] = found.get(disk, 0.0) + sample.value
        return found


def allowed_set(root: Path = Path("/")) -> frozenset[int]:
    """The CPUs of our affinity, which the kernel keeps inside our cpuset."""
    for line in (read_text(root / "proc/self/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            allowed = parse_cpu_list(line.partition(":")[2])
            online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
            return allowed & online or allowed
    return frozenset(os.sched_getaffinity(0))


def cpu_times(text: str, cores: Collection[int]) -> tuple[float, ...] | None:
    """Seconds of these cores together, as the first eight fields of /proc/stat; None where it does not show them, or keeps no account."""
    rows = []
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            rows.append([int(field) / CLOCK_TICKS for field in fields[:8]] + [0.0] * (8 - len(fields)))
    sums = tuple(sum(column) for column in zip(*rows, strict=True))
    return sums if any(sums) else None  # sandboxes like gVisor write zeros


def yielding_s(root: Path = Path("/")) -> dict[int, float]:
    """CPU seconds of niced and SCHED_IDLE processes that really yield to us; niceness only counts within one scheduler group.

    Groups are control groups and, where the kernel groups by session (autogroup), sessions: a niced job in another one takes half.
    """
    found: dict[int, float] = {}
    ours = _scheduled_in(root / "proc/self")
    for path in root.glob("proc/[0-9]*/stat"):
        try:
            text = path.read_bytes()
            fields = text[text.rindex(b")") + 2 :].split()
            user_s, system_s = (int(fields[place]) / CLOCK_TICKS for place in (11, 12))
            niced, idle = int(fields[16]) > 0, int(fields[38]) == _SCHED_IDLE
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        if (niced or idle) and _scheduled_in(path.parent) == ours:
            found[int(path.parent.name)] = user_s + system_s
    return found


def _scheduled_in(process: Path) -> tuple[str | None, str]:
    """(control group for CPUs, group of the session): only who has both in common is weighed against each other by niceness."""
    group = membership_for("cpu", parse_membership(read_text(process / "cgroup") or ""))
    path = group.path if group else None
    by_session = path in (None, "/") and read_text(process.parent / "sys/kernel/sched_autogroup_enabled") == "1"
    session = (read_text(process / "autogroup") or "").partition(" ")[0] if by_session else ""
    return path, session


def taken_from_us(others_cores: float, affinity_cores: int, allowed_cores: float) -> float:
    """Cores used by others that we would have used: beside a quota there may be room for both."""
    return max(0.0, others_cores - (affinity_cores - allowed_cores))


def mean_others(stretches: Sequence[LoadInterval]) -> float | None:
    """Over all stretches, by their length."""
    known = [(one.seconds, others) for one in stretches if (others := one.others_cores) is not None]
    seconds = sum(length for length, _ in known)
    return sum(length * others for length, others in known) / seconds if seconds else None


def _own_cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _thermal_events(root: Path, cores: Collection[int]) -> int | None:
    """Number of times a core lowered its clock because of heat; unavailable on virtual machines and AMD."""
    folders = (root / f"sys/devices/system/cpu/cpu{core}/thermal_throttle" for core in cores)
    counts = [read_text(folder / "core_throttle_count") for folder in folders]
    known = [int(count) for count in counts if count and count.isdigit()]
    return sum(known) if known else None


def _pressure(root: Path) -> dict[str, float]:
    found = {}
    for name in PRESSURE.values():
        text = read_text(root / "proc/pressure" / name)
        try:
            found[name] = parse_pressure_some((text or "").encode())
        except ValueError:
            continue
    return found
