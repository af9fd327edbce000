"""Finds the file systems of the training data from the files that data-loading processes hold open for reading.

Every dataset class stores its path differently, but open files are always visible. Only mount points and counts leave this probe, never
file names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.procfs import read_text
from rn50_advisor.probes.host.storage.disk_probe import Mount, mount_entry_of, mount_in
from rn50_advisor.probes.host.storage.mount_table import MountEntry, parse_mountinfo
from rn50_advisor.probes.host.target import Target

PROCESSES_PER_TICK = 2  # all workers behave alike, and reading one costs 0.4 ms
# After ENOUGH_FILES, one reading every SLOW_PERIOD_NS is enough to notice changes.
ENOUGH_FILES, SLOW_PERIOD_NS = 20, 5_000_000_000
FILES_MAX = 2000  # different files; then the probe stops reading
DISKS_MAX = 16
MOUNTS_PERIOD_NS = 30_000_000_000
_NOT_DATA = ("/proc/", "/sys/", "/dev/", "/memfd:")
_CODE = (".py", ".pyc", ".so", ".pth", ".zip", ".egg")
_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class DataFilesProbe:
    """Reads workers, and ranks without workers. `take_mounts` returns each disk's mount and each mount with data once."""

    name = "data_files"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._gaps = GapsOnce()
        self._seen: set[str] = set()
        self._found: Counter[str] = Counter()
        self._reported: set[str] = set()
        self._new: list[Mount] = []
        self._mounts: tuple[MountEntry, ...] = ()
        self._mounts_due_ns = self._due_ns = 0
        self._turn = 0

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        readers = loading_processes(targets)
        if readers and now_ns >= self._due_ns and len(self._seen) < FILES_MAX:
            self._due_ns = now_ns + (SLOW_PERIOD_NS if len(self._seen) >= ENOUGH_FILES else 0)
            if now_ns >= self._mounts_due_ns:
                self._mounts_due_ns = now_ns + MOUNTS_PERIOD_NS
                self._mounts = parse_mountinfo(read_text(self._root / f"proc/{readers[0].pid}/mountinfo") or "")
                self._report_disks()
            for number in range(min(PROCESSES_PER_TICK, len(readers))):
                self._read_open_files(readers[(self._turn + number) % len(readers)])
            self._turn += PROCESSES_PER_TICK
        samples = tuple(Sample("data.files", f"mount:{point}", float(n)) for point, n in sorted(self._found.items()))
        return Reading(samples, self._gaps.take())

    def take_mounts(self) -> tuple[Mount, ...]:
        new, self._new = tuple(self._new), []
        return new

    def _report_disks(self) -> None:
        """Reports each disk's shortest mount: files that are read quickly may never be seen open, but the disk's traffic shows them."""
        points: dict[str, str] = {}
        for entry in self._mounts:
            if entry.source.startswith("/dev/"):
                points[entry.device] = min(points.get(entry.device, entry.mount_point), entry.mount_point, key=len)
        for point in list(points.values())[:DISKS_MAX]:
            self._report_mount(point)

    def _report_mount(self, path: str) -> None:
        mount = mount_in(self._mounts, path, self._root)
        if mount is not None and mount.mount_point not in self._reported:
            self._reported.add(mount.mount_point)
            self._new.append(mount)

    def _read_open_files(self, target: Target) -> None:
        try:
            for path in self._open_data(target.pid):
                self._seen.add(path)
                entry = mount_entry_of(path, self._mounts)
                if entry is None:
                    continue
                self._report_mount(path)
                self._found[entry.mount_point] += 1
        except PermissionError:
            hint = "run the advisor as the user of the job"
            self._gaps.add("data.files", f"pid:{target.pid}", "/proc/<pid>/fd is not readable", hint, key=target.role)
        except OSError:
            return  # the process has just ended

    def _open_data(self, pid: int) -> Iterator[str]:
        folder = f"{self._root}/proc/{pid}/fd"
        for number in os.listdir(folder):  # noqa: PTH208 - twenty names each second: no path objects
            try:
                path = os.readlink(f"{folder}/{number}")  # noqa: PTH115 - of a deleted file it is no path
            except FileNotFoundError:
                continue  # closed meanwhile
            if path in self._seen or not path.startswith("/") or path.startswith(_NOT_DATA):
                continue
            if path.endswith(_CODE) or path.endswith(" (deleted)"):
                continue
            if self._is_read_only(pid, number):
                yield path

    def _is_read_only(self, pid: int, number: str) -> bool:
        text = read_text(self._root / f"proc/{pid}/fdinfo/{number}") or ""
        flags = next((line.split()[1] for line in text.splitlines() if line.startswith("flags:")), "")
        return bool(flags) and int(flags, 8) & _ACCESS == os.O_RDONLY


def loading_processes(targets: Sequence[Target]) -> list[Target]:
    """All workers, and the ranks without workers."""
    workers = [target for target in targets if target.role == "worker"]
    served = {target.rank for target in workers}
    return workers + [t for t in targets if t.role == "rank" and t.rank not in served]
