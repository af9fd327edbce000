"""Read limits of control groups on disks (`docker --device-read-bps`, io.max), in v1 and v2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.cgroup.cgroup_paths import find_levels
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.procfs import read_text
from rn50_advisor.probes.host.storage.block_devices import disk_of_number
from rn50_advisor.probes.host.storage.mount_table import parse_mountinfo
from rn50_advisor.probes.host.target import Target

METRICS = ("disk.limit_read_bytes_s", "disk.limit_reads_s")
_V1_FILES = {"blkio.throttle.read_bps_device": METRICS[0], "blkio.throttle.read_iops_device": METRICS[1]}
_V2_KEYS = {"rbps": METRICS[0], "riops": METRICS[1]}
PERIOD_NS = 5_000_000_000  # limits rarely change, and jobs rarely move between cgroups

Limits = dict[tuple[str, str], float]  # metric and device number


def parse_v1(metric: str, text: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Parses lines like `7:0 2000000`."""
    for line in text.splitlines():
        number, _, value = line.partition(" ")
        if value.strip().isdigit():
            yield (metric, number), float(value)


def parse_v2(text: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Parses lines like `8:16 rbps=2097152 wbps=max riops=max wiops=max`."""
    for line in text.splitlines():
        number, *settings = line.split()
        for setting in settings:
            key, _, value = setting.partition("=")
            if key in _V2_KEYS and value.isdigit():
                yield (_V2_KEYS[key], number), float(value)


def tightest(found: Iterable[tuple[tuple[str, str], float]]) -> Limits:
    limits: Limits = {}
    for key, value in found:
        limits[key] = min(value, limits.get(key, value))
    return limits


class IoLimitsProbe:
    """Reports each disk's tightest read limit over all ranks and cgroup levels; disks without a limit are left out."""

    name = "io_limits"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._gaps = GapsOnce()
        self._due_ns = 0
        self._samples: tuple[Sample, ...] = ()

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + PERIOD_NS
            ranks = [target.pid for target in targets if target.role == "rank"]
            self._samples = tuple(self._limits(ranks or [target.pid for target in targets]))
        return Reading(self._samples, self._gaps.take())

    def _limits(self, pids: Sequence[int]) -> Iterator[Sample]:
        mounts = parse_mountinfo(read_text(self._root / "proc/self/mountinfo") or "")
        groups: dict[tuple[str, ...], int] = {}
        for pid in pids:
            text = read_text(self._root / f"proc/{pid}/cgroup")
            levels = find_levels("blkio", pid, text, mounts, self._root) if text else None
            if levels is not None:
                groups[levels.directories] = levels.version
        if pids and not groups:
            hint = "mount /sys/fs/cgroup into the container; a limit on reading would show only in its effect"
            self._gaps.add(METRICS, "host", "no control group for block devices", hint)
        found = [pair for names, version in groups.items() for pair in self._of_levels(names, version)]
        for (metric, number), value in sorted(tightest(found).items()):
            disk = disk_of_number(number, self._root)
            if disk is not None:
                yield Sample(metric, f"disk:{disk}", value)

    def _of_levels(self, directories: Sequence[str], version: int) -> Iterator[tuple[tuple[str, str], float]]:
        for directory in directories:
            if version == 2:
                yield from parse_v2(read_text(self._root / directory / "io.max") or "")
                continue
            for name, metric in _V1_FILES.items():
                yield from parse_v1(metric, read_text(self._root / directory / name) or "")
