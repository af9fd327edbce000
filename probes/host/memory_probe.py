"""The host's memory, swap, shared memory and pressure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.procfs import PAGE_BYTES, KeptFiles, parse_keyed
from rn50_advisor.probes.host.target import Target

MEMINFO = {
    "mem.total_bytes": b"MemTotal",
    "mem.available_bytes": b"MemAvailable",
    "mem.cached_bytes": b"Cached",
}
PRESSURE = {"psi.cpu_some_s": "cpu", "psi.mem_some_s": "memory", "psi.io_some_s": "io"}


def parse_pressure_some(text: bytes) -> float:
    """Seconds in which some task waited, from the `total` (microseconds) of the `some` line. Raises ValueError."""
    for line in text.splitlines():
        if line.startswith(b"some "):
            return int(line.rsplit(b"total=", 1)[1]) / 1e6
    raise ValueError("no `some` line")


class MemoryProbe:
    name = "memory"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._gaps = GapsOnce()

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        samples = [*self._meminfo(), *self._vmstat(), *self._pressure(), *self._shared(targets)]
        return Reading(tuple(samples), self._gaps.take())

    def _meminfo(self) -> list[Sample]:
        try:
            values = parse_keyed(self._files.read_all(0, "proc/meminfo"))
        except OSError as e:
            self._gaps.add(MEMINFO, "host", f"/proc/meminfo: {e.strerror}")
            return []
        return [Sample(metric, "host", values[key] * 1024.0) for metric, key in MEMINFO.items() if key in values]

    def _vmstat(self) -> list[Sample]:
        try:
            values = parse_keyed(self._files.read_all(0, "proc/vmstat"))
        except OSError as e:
            self._gaps.add(("mem.swap_in_bytes", "mem.oom_kills"), "host", f"/proc/vmstat: {e.strerror}")
            return []
        samples = []
        for metric, key, unit in (("mem.swap_in_bytes", b"pswpin", PAGE_BYTES), ("mem.oom_kills", b"oom_kill", 1)):
            if key in values:
                samples.append(Sample(metric, "host", float(values[key] * unit)))
            else:
                self._gaps.add(
                    metric, "host", f"/proc/vmstat has no {key.decode()}", "the kernel is too old or built without it"
                )
        return samples

    def _pressure(self) -> list[Sample]:
        samples = []
        for metric, resource in PRESSURE.items():
            try:
                value = parse_pressure_some(self._files.read(0, f"proc/pressure/{resource}"))
            except FileNotFoundError:
                self._gaps.add(
                    metric,
                    "host",
                    "no /proc/pressure",
                    "the kernel has no pressure stall information (CONFIG_PSI, 4.20)",
                )
            except (OSError, ValueError) as e:
                reason = e.strerror if isinstance(e, OSError) else e
                self._gaps.add(metric, "host", f"/proc/pressure/{resource}: {reason}", "boot with psi=1")
            else:
                samples.append(Sample(metric, "host", value))
        return samples

    def _shared(self, targets: Sequence[Target]) -> list[Sample]:
        """Returns the job's fullest /dev/shm. A container or a separate mount namespace has its own, usually a small one."""
        found = {}
        for target in targets:
            if target.role != "worker":
                with contextlib.suppress(OSError):  # it has ended, or access is denied
                    seen = os.statvfs(self._root / f"proc/{target.pid}/root/dev/shm")
                    found[_used_share(seen)] = seen
        try:
            fs = found[max(found)] if found else os.statvfs(self._root / "dev/shm")
        except OSError as e:
            self._gaps.add(("mem.shm_total_bytes", "mem.shm_used_bytes"), "host", f"/dev/shm: {e.strerror}")
            return []
        return [
            Sample("mem.shm_total_bytes", "host", float(fs.f_blocks * fs.f_frsize)),
            Sample("mem.shm_used_bytes", "host", float((fs.f_blocks - fs.f_bfree) * fs.f_frsize)),
        ]


def _used_share(fs: os.statvfs_result) -> float:
    return 1.0 - fs.f_bfree / fs.f_blocks if fs.f_blocks else 0.0
