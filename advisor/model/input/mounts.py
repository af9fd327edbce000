"""The storage of a job's data, and its wording in reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_BUSY_SHARE,
    STORAGE_CACHE_HIT_SHARE,
    STORAGE_EPOCH_MB,
    STORAGE_GROUP_ROOM_MB,
    STORAGE_HOST_ROOM_MB,
    STORAGE_JOB_SHARE,
    STORAGE_LIMIT_MB_S,
    STORAGE_LIMIT_READS_S,
    STORAGE_MOUNT_MB_S,
    STORAGE_MOUNT_READS_S,
    STORAGE_QUEUE,
    STORAGE_READ_MB_S,
    STORAGE_READ_S,
    STORAGE_READS_S,
    STORAGE_REQUEST_KB,
    STORAGE_REREAD_SHARE,
    STORAGE_SAMPLE_KB,
    STORAGE_VOLUME_EXCEEDED_SHARE,
)
from rn50_advisor.advisor.model.wording.quantities import quantity, share

_MB = 1e6
_EPOCHS_SHOWN = 8
_SHOWN = 8  # mounts


@dataclass(frozen=True, slots=True)
class DataMount:
    """A file system with training data. `network` None: unknown. `disk` None: not on a disk of this host."""

    mount_point: str
    fs_type: str
    device: str
    network: bool | None
    disk: str | None
    below: tuple[str, ...] = ()  # physical disks below `disk` if that is a virtual device
    seeks: bool | None = None  # True: the kernel considers it a rotational disk
    model: str = ""

    @property
    def words(self) -> str:
        """For example `/data (ext4 on nvme1n1)` or `/data (nfs4 from server:/export)`."""
        if self.disk is None:
            return f"{self.mount_point} ({self.fs_type} from {self.device})" if self.network else self.plain
        layers = f"{self.disk} over {', '.join(self.below)}" if self.below else self.disk
        return f"{self.mount_point} ({self.fs_type} on {layers})"

    @property
    def plain(self) -> str:
        return f"{self.mount_point} ({self.fs_type})"


def storage_facts(mounts: Sequence[DataMount], values: Measured) -> dict[str, dict[str, str]]:
    """The storage of the data and its activity in words, for the report; one row per further mount. Empty if nothing is known."""

    def described(measure: JobMeasure, unit: str, words: str) -> str:
        value = values.get((measure, JOB))
        if value is None:
            return ""
        value *= _MB if unit == "bytes" else 1.0
        return words.format(share(value) if unit == "share" else quantity(value, unit))

    lines = {
        "location": tuple(_place(mount) for mount in mounts[:1]),
        **{
            f"also on{'' if n == 1 else f' ({n})'}": _beside(mount, values)
            for n, mount in enumerate(mounts[1:_SHOWN], 1)
        },
        "reads": (
            described(STORAGE_READ_MB_S, "MB/s", "{}"),
            described(STORAGE_READS_S, "reads/s", "{}"),
            described(STORAGE_REQUEST_KB, "KB", "{} each"),
            described(STORAGE_READ_S, "s", "in {}"),
        ),
        "disk": (
            described(STORAGE_BUSY_SHARE, "share", "{} busy"),
            described(STORAGE_QUEUE, "requests", "{} in flight"),
            described(STORAGE_JOB_SHARE, "share", "{} of its traffic is this job's"),
            described(STORAGE_LIMIT_MB_S, "MB/s", "a control group allows {}"),
            described(STORAGE_LIMIT_READS_S, "reads/s", "a control group allows {}"),
            described(STORAGE_VOLUME_EXCEEDED_SHARE, "share", "throttled by the provider {} of the time"),
        ),
        "page cache": (
            described(STORAGE_CACHE_HIT_SHARE, "share", "{} of the bytes asked for"),
            described(STORAGE_REREAD_SHARE, "share", "later epochs read {} again"),
            _by_epoch(values),
        ),
        "data": (
            described(STORAGE_SAMPLE_KB, "KB", "{} per sample"),
            described(STORAGE_EPOCH_MB, "bytes", "{} per epoch"),
        ),
        "room for files": (
            described(STORAGE_HOST_ROOM_MB, "bytes", "{} on this host"),
            described(STORAGE_GROUP_ROOM_MB, "bytes", "{} in its control group"),
        ),
    }
    found = {label: ", ".join(part for part in parts if part) for label, parts in lines.items()}
    found = {label: text for label, text in found.items() if text}
    return {"storage": found} if set(found) - {"room for files"} else {}


def _by_epoch(values: Measured) -> str:
    """Cache hits of each of the first epochs; empty if fewer than two are known."""
    hits = [values.get((STORAGE_CACHE_HIT_SHARE, number)) for number in range(_EPOCHS_SHOWN)]
    known = [share(hit) for hit in hits if hit is not None]
    return f"by epoch {', '.join(known)}" if len(known) > 1 else ""


def _beside(mount: DataMount, values: Measured) -> tuple[str, ...]:
    """A further mount and its read rates."""
    rates = [
        quantity(rate, measure.unit)
        for measure in (STORAGE_MOUNT_MB_S, STORAGE_MOUNT_READS_S)
        if (rate := values.get((measure, mount.mount_point))) is not None
    ]
    return _place(mount), *rates


def _place(mount: DataMount) -> str:
    network = {True: ", over a network", False: "", None: ", on another machine or on this host"}[mount.network]
    return mount.words + network + (f", {mount.model}" if mount.model else "")
