"""The storage behind a folder, the limits of our control groups on it, and who could change them."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rn50_advisor.advisor.run.rings.own_folder import OwnFolder, remove_tree, sweep
from rn50_advisor.advisor.triage.deadline import within
from rn50_advisor.advisor.triage.found_checks import Remedy
from rn50_advisor.probes.host.cgroup.io_limits import IoLimitsProbe
from rn50_advisor.probes.host.storage.disk_probe import Mount, mount_of
from rn50_advisor.probes.host.target import Target

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
# They accept a request to bypass the page cache, and answer it from a cache of their own or of the host.
_CACHING = ("zfs", "fuse", "9p", "virtiofs")
_VOLUME_MODELS = ("elastic block", "card-pd", "virtual", "qemu", "vmware", "msft", "persistent")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, its mount, and the tightest I/O limits that our control groups set there."""

    folder: Path
    mount: Mount | None
    limits: dict[str, float]

    @property
    def remedy(self) -> Remedy:
        """A local disk, or several as a RAID, is the machine's; a volume has a class that can be changed, and data another place to lie."""
        model = self.mount.model.lower() if self.mount else ""
        local = self.mount is not None and not self.mount.network and _of_disks(self.mount)
        volume = not model or any(word in model for word in _VOLUME_MODELS)
        return "hand-back" if local and not volume and not self.limits else "fix"

    @property
    def in_memory(self) -> bool:
        return self.mount is not None and self.mount.fs_type in _IN_MEMORY

    @property
    def caches(self) -> bool:
        return self.mount is not None and self.mount.fs_type.startswith(_CACHING)

    @property
    def words(self) -> str:
        if self.mount is None:
            return str(self.folder)
        on = " on ".join(part for part in (self.mount.fs_type, self.mount.device, self.mount.model) if part)
        return f"{self.folder} ({on})"

    @property
    def advice(self) -> str:
        if self.limits:
            return (
                "a control group of ours limits reading (docker --device-read-bps, io.max): raise or remove that limit"
            )
        if self.remedy == "hand-back":
            return "it is a local disk of the machine"
        return "use another class of volume, a local NVMe disk, or store the data in shards"


def _of_disks(mount: Mount) -> bool:
    """True for a disk; false for a mounted file, where the layer in between may be slow."""
    plain = (mount.disk or "").startswith(("nvme", "md", "dm-"))
    return plain and all(disk.startswith("nvme") for disk in mount.below or (mount.disk or "",))


def place_of(folder: Path, root: Path = Path("/")) -> Place:
    mount = mount_of(folder, root)
    disks = {disk for disk in (mount.disk, *mount.below) if disk} if mount else set()
    reading = IoLimitsProbe(root).sample(time.monotonic_ns(), (Target(os.getpid(), "other"),))
    found: dict[str, float] = {}
    for sample in reading.samples:
        if sample.scope.removeprefix("disk:") in disks:
            found[sample.metric] = min(sample.value, found.get(sample.metric, sample.value))
    return Place(folder, mount, found)


PREFIX = "rn50-triage-"
_OLD_S = 86_400.0  # no triage takes a day: what is older on a shared volume is no other machine's that still runs
GOES_S = 5.0  # some hundred files take milliseconds, and as long on a throttled volume


# The one folder that a triage writes to; it goes away however the triage ends, and what a killed one left goes with the next.
@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Below `parent`, or where temporary files go. Raises OSError where nothing can be written."""
    where = parent or Path(tempfile.gettempdir())
    sweep(where, PREFIX, remove_tree, other_boots_after_s=_OLD_S)
    with _ending_by_exception():
        own = OwnFolder(where, PREFIX)
        try:
            yield own.path
        finally:
            # a disk that hangs keeps its files; the next triage sweeps what is left
            within(GOES_S, functools.partial(own.close, remove_tree))


@contextlib.contextmanager
def _ending_by_exception() -> Iterator[None]:
    """SIGTERM and SIGHUP end us as Ctrl-C does: through every `finally`."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
