"""The host's disks, and the disk and mount of a path."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.procfs import KeptFiles, read_text
from rn50_advisor.probes.host.storage.block_devices import disk_of_number, disks_below, model, rotational, whole_disk
from rn50_advisor.probes.host.storage.mount_table import MountEntry, parse_mountinfo
from rn50_advisor.probes.host.target import Target

SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the device uses
RECHECK_PERIOD_NS = 10_000_000_000  # a loop device may get a file, or a disk may be plugged in
METRICS = (
    "disk.read_bytes",
    "disk.reads",
    "disk.read_wait_s",
    "disk.write_bytes",
    "disk.writes",
    "disk.busy_s",
    "disk.queue_s",
)
_NO_DISK = re.compile(r"(ram|zram|fd)\d+$")

NETWORK_TYPES = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ceph lustre gpfs beegfs glusterfs orangefs pvfs2 wekafs gfs2 ocfs2 acfs vastnfs".split()  # noqa: SIM905
)
NETWORK_FUSE = re.compile(
    r"s3|gcs|goofys|blobfuse|rclone|sshfs|juicefs|ceph|gluster|lustre|hdfs|oss|cos|tos|alluxio|webdav|seaweed|mfs", re.I
)
# Behind these may be a local disk of the host or a server; that is not visible from inside.
UNKNOWN_TYPES = frozenset(
    ("9p", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "drvfs", "overlay", "aufs", "unionfs", "autofs")
)


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount of a path. `network` None: unknown. `disk`: the name in scopes `disk:<name>`; None: no disk visible.

    `below`: the disks under a layered device (LVM, RAID, encryption, a loop file). `seeks`: True if the kernel considers it rotational.
    """

    device: str
    mount_point: str
    fs_type: str
    network: bool | None
    disk: str | None
    below: tuple[str, ...] = ()
    seeks: bool | None = None
    model: str = ""


def is_network(fs_type: str, source: str) -> bool | None:
    """True if the file system is remote; None: unknown (the data may be on another machine, this VM's host, or in a local program)."""
    if fs_type in NETWORK_TYPES:
        return True
    if fs_type.startswith("fuse"):
        # FUSE programs name themselves in the type (fuse.s3fs) or only in the source (mountpoint-s3)
        subtype = fs_type.partition(".")[2]
        if fs_type == "fuseblk" or (source.startswith("/dev/") and source != "/dev/fuse"):
            return False
        return True if NETWORK_FUSE.search(subtype or source) else None
    if fs_type in UNKNOWN_TYPES:
        return None
    return False


def mount_entry_of(path: str, entries: Sequence[MountEntry]) -> MountEntry | None:
    """The entry with the longest mount point above an absolute, resolved path; among equals the last, which hides the others."""
    best: MountEntry | None = None
    for entry in entries:
        point = entry.mount_point.rstrip("/")
        if (path == point or path.startswith(point + "/")) and (
            best is None or len(point) >= len(best.mount_point.rstrip("/"))
        ):
            best = entry
    return best


def disk_of(entry: MountEntry, root: Path) -> str | None:
    """The disk of a mount, found by device number, or by name for file systems with anonymous numbers (btrfs)."""
    known = disk_of_number(entry.device, root)
    if known is not None:
        return known
    if not entry.source.startswith("/dev/") or entry.source in ("/dev/fuse", "/dev/root"):
        return None
    return whole_disk(os.path.realpath(root / entry.source.lstrip("/")).rpartition("/")[2], root)


def mount_of(path: str | Path, root: Path = Path("/")) -> Mount | None:
    """The mount of `path`, which need not exist. Resolves symlinks. None if /proc/self/mountinfo is unreadable."""
    entries = parse_mountinfo(read_text(root / "proc/self/mountinfo") or "")
    prefix = str(root.resolve()).rstrip("/")
    resolved = os.path.realpath(f"{prefix}/{Path(path).absolute().as_posix().lstrip('/')}").removeprefix(prefix) or "/"
    return mount_in(entries, resolved, root)


def mount_in(entries: Sequence[MountEntry], path: str, root: Path = Path("/")) -> Mount | None:
    """The mount of an absolute path without symlinks; `entries` is the mount table of the path's process."""
    entry = mount_entry_of(path, entries)
    if entry is None:
        return None
    network, disk = is_network(entry.fs_type, entry.source), disk_of(entry, root)
    upper = re.search(r"(?:^|,)(?:upperdir|lowerdir)=([^,:]+)", entry.options) if entry.fs_type == "overlay" else None
    below = mount_entry_of(upper[1], entries) if upper else None
    # In a container the layers are paths of the host: here they would resolve to the overlay itself, which is no answer.
    if below is not None and below is not entry and below.fs_type != "overlay":
        network, disk = is_network(below.fs_type, below.source), disk_of(below, root)
    mount = Mount(entry.source, entry.mount_point, entry.fs_type, network, disk)
    return mount if disk is None else _with_layers(mount, disk, entries, root)


def _with_layers(mount: Mount, disk: str, entries: Sequence[MountEntry], root: Path) -> Mount:
    def disk_of_file(path: str) -> str | None:
        entry = mount_entry_of(path, entries)
        return disk_of(entry, root) if entry else None

    below = disks_below(disk, root, disk_of_file)
    lowest = below[0] if below else disk
    return replace(mount, below=below, seeks=rotational(lowest, root), model=model(lowest, root))


class DiskProbe:
    """Reports whole disks, whose counters include their partitions. Device mapper and md devices are reported beside their members."""

    name = "disk"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root)
        self._gaps = GapsOnce()
        self._is_disk: dict[bytes, bool] = {}
        self._recheck_ns = 0

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        try:
            text = self._files.read_all(0, "proc/diskstats")
        except OSError as e:
            self._gaps.add(
                METRICS,
                "host",
                f"/proc/diskstats: {e.strerror}",
                "some containers hide it: run the advisor on the host",
            )
            return Reading((), self._gaps.take())
        if now_ns >= self._recheck_ns:
            self._is_disk = {name: True for name, is_disk in self._is_disk.items() if is_disk}
            self._recheck_ns = now_ns + RECHECK_PERIOD_NS
        samples: list[Sample] = []
        for line in text.splitlines():
            f = line.split()
            if len(f) < 14 or not self._counts(f[2], f[3:14]):
                continue
            values = (
                int(f[5]) * SECTOR_BYTES,
                int(f[3]),
                int(f[6]) / 1e3,
                int(f[9]) * SECTOR_BYTES,
                int(f[7]),
                int(f[12]) / 1e3,
                int(f[13]) / 1e3,
            )
            scope = f"disk:{f[2].decode()}"
            samples += [Sample(metric, scope, float(value)) for metric, value in zip(METRICS, values, strict=True)]
        if not samples:
            self._gaps.add(
                METRICS, "host", "/proc/diskstats lists no disk", "data may lie on a network or a host's filesystem"
            )
        return Reading(tuple(samples), self._gaps.take())

    def _counts(self, name: bytes, counters: list[bytes]) -> bool:
        known = self._is_disk.get(name)
        if known is None:
            known = self._is_disk[name] = self._classify(name.decode(), any(c != b"0" for c in counters))
        return known

    def _classify(self, name: str, active: bool) -> bool:
        if _NO_DISK.match(name) or whole_disk(name, self._root) != name:
            return False
        size = read_text(self._root / "sys/class/block" / name / "size")
        # a loop device without a file, an empty drive, an unused nbd: size 0
        return active if size is None else size != "0"
