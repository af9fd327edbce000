"""Traffic of NFS mounts with their servers. Disk counters do not include it, and iowait stays zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.procfs import KeptFiles
from rn50_advisor.probes.host.target import Target

RECHECK_PERIOD_NS = 10_000_000_000  # an automounter may add one
METRICS = ("mount.read_bytes", "mount.asked_bytes", "mount.reads", "mount.read_wait_s")


@dataclass(frozen=True, slots=True)
class NfsMount:
    """Counters of an NFS mount since it was mounted."""

    mount_point: str
    asked_bytes: int  # bytes requested by read calls, with and without the page cache
    read_bytes: int  # bytes read from the server
    reads: int
    read_wait_s: float


def parse_mountstats(text: str) -> Iterator[NfsMount]:
    """Yields the NFS mounts that report bytes. Other file systems have only a single line."""
    point, given, reads, waited_ms = "", [0] * 8, 0, 0
    has_bytes = False
    for line in [*text.splitlines(), "device end mounted on / with fstype none"]:
        words = line.split()
        if line.startswith("device "):
            if has_bytes:
                yield NfsMount(point, given[0] + given[2], given[4], reads, waited_ms / 1e3)
            # `device server:/export mounted on /data with fstype nfs4 statvers=1.1`; blanks are written \040
            found = words[words.index("on") + 1] if "on" in words else ""
            point, reads, waited_ms, has_bytes = found.encode().decode("unicode_escape"), 0, 0, False
        elif line.startswith("\tbytes:") and len(words) >= 7:
            given, has_bytes = [int(word) for word in words[1:]], True
        elif words[:1] == ["READ:"] and len(words) >= 9:
            # operations, transmissions, timeouts, bytes sent, bytes received, ms queued, ms on the wire, ms in total
            reads, waited_ms = int(words[1]), int(words[8])


class NfsProbe:
    """Reports nothing, and no gap, on a machine without NFS."""

    name = "nfs"

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = KeptFiles(root)
        self._gaps = GapsOnce()
        self._due_ns = 0

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        if now_ns < self._due_ns:
            return Reading()
        try:
            text = self._files.read_all(0, "proc/self/mountstats").decode(errors="replace")
        except OSError as e:
            self._gaps.add(METRICS, "host", f"/proc/self/mountstats: {e.strerror}", "Linux before 2.6.17, or no /proc")
            return Reading((), self._gaps.take())
        samples: list[Sample] = []
        for mount in parse_mountstats(text):
            values = (mount.read_bytes, mount.asked_bytes, mount.reads, mount.read_wait_s)
            scope = f"mount:{mount.mount_point}"
            samples += [Sample(metric, scope, float(value)) for metric, value in zip(METRICS, values, strict=True)]
        self._due_ns = now_ns + (0 if samples else RECHECK_PERIOD_NS)
        return Reading(tuple(samples), self._gaps.take())
