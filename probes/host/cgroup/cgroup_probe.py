"""The cgroup limits of each process of the job and their effect: CPU quota, throttling, memory limit, OOM kills.

Limits above the topmost visible cgroup are unknown (a Kubernetes pod's limits, seen from its container).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.cgroup.cgroup_paths import Levels, find_levels
from rn50_advisor.probes.host.counters import Continued, GapsOnce
from rn50_advisor.probes.host.procfs import KeptFiles, parse_keyed, read_text
from rn50_advisor.probes.host.storage.mount_table import MountEntry, parse_mountinfo
from rn50_advisor.probes.host.target import Target

NO_LIMIT_BYTES = 1 << 60  # v1's value for no limit: the largest multiple of a page in 63 bits
MOUNTS_PERIOD_NS = 30_000_000_000
_LIMIT_FILES = {"cpu": "cpu.max", "memory": "memory.max"}  # v2 files; present wherever the controller is
CPU_METRICS = ("cgroup.quota_cores", "cgroup.throttled_s", "cgroup.periods", "cgroup.throttled_periods")
MEMORY_METRICS = ("cgroup.mem_limit_bytes", "cgroup.mem_used_bytes", "cgroup.mem_cache_bytes", "cgroup.oom_kills")


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """The tightest CPU quota above a process, and the counters of the cgroup that has it. `holder` None: no quota, no throttling.

    `looser`: other quotas above the process. Several processes may share one, so it may throttle a process that is within its own quota.
    """

    quota_cores: float | None = None
    holder: str | None = None
    throttled_s: float = 0.0
    periods: float = 0.0
    throttled_periods: float = 0.0
    looser: tuple[CpuLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """`used_bytes` is charged to the holder, the cgroup with the tightest limit; without a limit it is the process's own cgroup."""

    limit_bytes: int | None
    holder: str
    used_bytes: int | None
    oom_kills: int | None
    cache_bytes: int | None = None  # the reclaimable part of `used_bytes`; read only if there is a limit


@dataclass(frozen=True, slots=True)
class CgroupState:
    """Limits of one process. None: not visible from here. `withheld`: controllers missing in the visible cgroups."""

    cpu: CpuLimit | None
    memory: MemoryLimit | None
    withheld: tuple[str, ...] = ()


def parse_cpu_max(text: bytes) -> float | None:
    """Cores that v2's `cpu.max` ("max 100000", "35000 100000") allows; None: no quota."""
    quota, _, period = text.strip().partition(b" ")
    return int(quota) / int(period or 100_000) if quota.isdigit() else None


def parse_cfs(quota_us: bytes, period_us: bytes) -> float | None:
    """Cores that v1's `cpu.cfs_quota_us` and `cpu.cfs_period_us` allow; None: no quota (-1)."""
    quota, period = int(quota_us), int(period_us)
    return quota / period if quota > 0 and period > 0 else None


def parse_memory_limit(text: bytes) -> int | None:
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < NO_LIMIT_BYTES else None


def parse_throttling(text: bytes) -> tuple[float, float, float]:
    """Throttled seconds, periods and throttled periods from either version's `cpu.stat`. v1 counts nanoseconds, v2 microseconds."""
    values = parse_keyed(text)
    throttled_s = (
        values[b"throttled_usec"] / 1e6 if b"throttled_usec" in values else values.get(b"throttled_time", 0) / 1e9
    )
    return throttled_s, float(values.get(b"nr_periods", 0)), float(values.get(b"nr_throttled", 0))


def parse_droppable(text: bytes, version: int) -> int | None:
    """Bytes of page cache and of the kernel's caches in `memory.stat`. Names and inodes of millions of small files take gigabytes.

    `memory.stat` counts shared memory as page cache, but it cannot be dropped. v1 does not separate the caches within kernel memory.
    """
    values = parse_keyed(text)
    cache, shared = (b"file", b"shmem") if version == 2 else (b"total_cache", b"total_shmem")
    if cache not in values:
        return None
    return max(0, values[cache] - values.get(shared, 0)) + values.get(b"slab_reclaimable", 0)


class CgroupReader:
    """Reads the limits of any process. Processes of the same cgroups share one reading per tick."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root, limit=256)
        self._mounts: tuple[MountEntry, ...] | None = None
        self._mounts_due_ns = 0
        self._levels: dict[tuple[str, str], Levels | None] = {}
        self._states: dict[bytes, CgroupState] = {}

    def begin_tick(self, now_ns: int) -> None:
        """Clears the cached limits and counters, and every `MOUNTS_PERIOD_NS` the cached mounts."""
        self._states.clear()
        if now_ns >= self._mounts_due_ns:
            self._mounts = None
            self._levels.clear()
            self._mounts_due_ns = now_ns + MOUNTS_PERIOD_NS

    def membership(self, pid: int) -> bytes | None:
        """Text of /proc/<pid>/cgroup, equal for processes with the same limits; None once the process is gone."""
        try:
            text = self._files.read(pid, "cgroup")
        except OSError:
            return None
        return text or None

    def state_of(self, pid: int) -> CgroupState | None:
        """Limits of a process; None once it is gone."""
        text = self.membership(pid)
        if text is None:
            return None
        state = self._states.get(text)
        if state is None:
            state = self._states[text] = self._state(pid, text)
        return state

    def _state(self, pid: int, text: bytes) -> CgroupState:
        found = {name: self._levels_of(name, pid, text) for name in _LIMIT_FILES}
        withheld = tuple(name for name, levels in found.items() if levels and self._withheld(levels, name))
        cpu, memory = (None if name in withheld else levels for name, levels in found.items())
        return CgroupState(
            self._cpu_limit(cpu) if cpu else None, self._memory_limit(memory) if memory else None, withheld
        )

    def _withheld(self, levels: Levels, controller: str) -> bool:
        """True if limits above are invisible: the v2 cgroups end below the hierarchy's root, as in a container, and lack the controller."""
        if levels.version == 1 or self._read(levels.directories[-1], "cgroup.type") is None:
            return False  # the root cgroup has no cgroup.type
        return all(self._read(directory, _LIMIT_FILES[controller]) is None for directory in levels.directories)

    def prune(self, pids: Iterable[int]) -> None:
        self._files.prune(set(pids))

    def _levels_of(self, controller: str, pid: int, text: bytes) -> Levels | None:
        decoded = text.decode(errors="surrogateescape")
        key = (controller, decoded)
        if key not in self._levels:
            # Our own mounts first: /proc/<pid>/cgroup has paths relative to the reader, and `ip netns exec` hides cgroups from the target.
            if self._mounts is None:
                self._mounts = parse_mountinfo(read_text(self._root / "proc/self/mountinfo") or "")
            levels = find_levels(controller, pid, decoded, self._mounts, self._root)
            if levels is None:
                inside = self._root / f"proc/{pid}/root"
                process_mounts = parse_mountinfo(read_text(self._root / f"proc/{pid}/mountinfo") or "")
                levels = find_levels(controller, pid, decoded, process_mounts, inside)
                if levels:
                    levels = Levels(levels.version, tuple(f"proc/{pid}/root/{d}" for d in levels.directories))
            self._levels[key] = levels
        return self._levels[key]

    def _cpu_limit(self, levels: Levels) -> CpuLimit:
        found = [(self._quota(levels.version, directory), directory) for directory in levels.directories]
        limits = [
            CpuLimit(quota, holder, *parse_throttling(self._read(holder, "cpu.stat") or b""))
            for quota, holder in found
            if quota is not None
        ]
        if not limits:
            return CpuLimit()
        tightest, *looser = sorted(limits, key=lambda limit: limit.quota_cores or 0.0)  # of equal quotas the innermost
        return replace(tightest, looser=tuple(looser))

    def _quota(self, version: int, directory: str) -> float | None:
        if version == 2:
            text = self._read(directory, "cpu.max")
            return parse_cpu_max(text) if text else None
        quota, period = self._read(directory, "cpu.cfs_quota_us"), self._read(directory, "cpu.cfs_period_us")
        return parse_cfs(quota, period) if quota and period else None

    def _memory_limit(self, levels: Levels) -> MemoryLimit:
        limit_name, used_name = (
            ("memory.max", "memory.current")
            if levels.version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        tightest: tuple[int, int] | None = None
        for depth, directory in enumerate(levels.directories):
            limit = parse_memory_limit(self._read(directory, limit_name) or b"")
            if limit is not None and (tightest is None or limit < tightest[0]):
                tightest = (limit, depth)
        depth = tightest[1] if tightest else 0
        holder = levels.directories[depth]
        used = self._read(holder, used_name)
        stat = self._read(holder, "memory.stat") if tightest else None
        return MemoryLimit(
            limit_bytes=tightest[0] if tightest else None,
            holder=holder,
            used_bytes=int(used) if used else None,
            oom_kills=self._oom_kills(levels, depth),
            cache_bytes=parse_droppable(stat, levels.version) if stat else None,
        )

    def _oom_kills(self, levels: Levels, depth: int) -> int | None:
        """Number of OOM kills. v2 counts a kill in the victim's cgroup and all above it, v1 only in the victim's."""
        if levels.version == 2:
            text = self._read(levels.directories[depth], "memory.events")
            return parse_keyed(text).get(b"oom_kill") if text else None
        texts = [self._read(directory, "memory.oom_control") for directory in levels.directories[: depth + 1]]
        counts = [parse_keyed(text).get(b"oom_kill") for text in texts if text]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _read(self, directory: str, name: str) -> bytes | None:
        try:
            return self._files.read(0, f"{directory}/{name}")
        except OSError:
            return None  # not enabled at this level (v2), no such file at the root, or the cgroup is being removed


class CgroupProbe:
    """Reports ranks, and workers whose cgroup differs from their rank's: else 64 workers would repeat their rank's numbers."""

    name = "cgroup"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._reader = CgroupReader(root)
        self._continued = Continued()
        # throttled seconds of each quota above a process at its first reading
        self._first_s: dict[tuple[int, str | None], float] = {}
        self._gaps = GapsOnce()

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        pids = {t.pid for t in targets}
        self._reader.begin_tick(now_ns)
        self._reader.prune(pids)
        self._continued.prune(pids)
        self._first_s = {key: first_s for key, first_s in self._first_s.items() if key[0] in pids}
        of_rank = {t.rank: self._reader.membership(t.pid) for t in targets if t.role == "rank"}
        samples: list[Sample] = []
        for target in targets:
            membership = self._reader.membership(target.pid) if target.role == "worker" else None
            if membership is not None and of_rank.get(target.rank) == membership:
                continue
            state = self._reader.state_of(target.pid)
            if state is not None:
                self._report(target, state, samples)
            elif (self._root / f"proc/{target.pid}/stat").exists():
                self._gaps.add(
                    CPU_METRICS + MEMORY_METRICS, "host", "no /proc/<pid>/cgroup", "the kernel has no cgroups"
                )
        return Reading(tuple(samples), self._gaps.take())

    def _report(self, target: Target, state: CgroupState, samples: list[Sample]) -> None:
        pid, scope = target.pid, f"pid:{target.pid}"
        for name, metrics, seen in (("cpu", CPU_METRICS, state.cpu), ("memory", MEMORY_METRICS, state.memory)):
            if seen is None:
                reason, hint = (
                    "the control group of this process is not visible here",
                    "run the advisor in the job's own container with /sys/fs/cgroup mounted",
                )
                if name in state.withheld:
                    reason = f"the control groups visible here do not control {name}"
                    hint = "a limit may be set above them: ask who runs the container, or run the advisor on the host"
                self._gaps.add(metrics, scope, reason, hint, key=(target.role, target.rank))
        if (cpu := state.cpu) is not None:
            if cpu.quota_cores is not None:
                samples.append(Sample("cgroup.quota_cores", scope, cpu.quota_cores))
            quota = self._throttling_quota(pid, cpu)
            for counter, raw in zip(
                CPU_METRICS[1:], (quota.throttled_s, quota.periods, quota.throttled_periods), strict=True
            ):
                samples.append(Sample(counter, scope, self._continued.value(pid, counter, quota.holder, raw)))
        if (memory := state.memory) is not None:
            if memory.limit_bytes is not None:
                samples.append(Sample("cgroup.mem_limit_bytes", scope, float(memory.limit_bytes)))
            if memory.used_bytes is not None:
                samples.append(Sample("cgroup.mem_used_bytes", scope, float(memory.used_bytes)))
            if memory.cache_bytes is not None:
                samples.append(Sample("cgroup.mem_cache_bytes", scope, float(memory.cache_bytes)))
            if memory.oom_kills is not None:
                kills = self._continued.value(pid, "cgroup.oom_kills", memory.holder, float(memory.oom_kills))
                samples.append(Sample("cgroup.oom_kills", scope, kills))

    def _throttling_quota(self, pid: int, cpu: CpuLimit) -> CpuLimit:
        """The quota above a process whose throttling grew most since its first reading; the tightest one if none grew."""

        def grown_s(limit: CpuLimit) -> float:
            return limit.throttled_s - self._first_s.setdefault((pid, limit.holder), limit.throttled_s)

        return max((cpu, *cpu.looser), key=grown_s)
