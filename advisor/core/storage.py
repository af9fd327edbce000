"""Storage as a job uses it: what its data lies on, in words, and the names of the numbers that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.core.format import metric_words, quantity, share

# Values of the whole job (as advisor.core.analysis.VALUES): over the steady steps unless they say otherwise.
STORAGE_VALUES: dict[str, tuple[str, str]] = {
    "storage.read_mb_s": ("MB/s", "read from the disk or the server that the data lies on"),
    "storage.reads_s": ("reads/s", "read requests to it"),
    "storage.usual_mb_s": ("MB/s", "read in the median second"),
    "storage.usual_reads_s": ("reads/s", "read requests in the median second"),
    "storage.request_kb": ("KB", "mean size of such a request"),
    "storage.read_s": ("s", "mean time that a read request took"),
    "storage.queue": ("requests", "requests in flight on average"),
    "storage.busy_share": ("", "share of the time with a request in flight"),
    "storage.job_share": ("", "share of the disk's traffic that the job caused"),
    "storage.device_share": ("", "of the time that loaders were blocked, what the disk took for their reads"),
    "storage.asked_mb_s": ("MB/s", "asked for by whoever makes batches, the page cache included"),
    "storage.sample_kb": ("KB", "asked for per sample: the mean file, where each sample is one"),
    "storage.cache_hit_share": ("", "share of what was asked for that the page cache held"),
    "storage.epoch_mb": ("MB", "asked for in the first epoch, by all ranks of this host"),
    "storage.later_epochs": ("epochs", "what was asked for after the first epoch, in epochs"),
    "storage.reread_share": ("", "of what was asked for after the first epoch, read from storage again"),
    "storage.later_read_share": ("", "of what was read from storage, what later epochs read"),
    "storage.host_room_mb": ("MB", "host memory that could hold files: free, or holding files now"),
    "storage.group_room_mb": ("MB", "the same within the memory limit of the job's control group"),
    "storage.limit_mb_s": ("MB/s", "what a control group of the job lets it read from the disk"),
    "storage.limit_reads_s": ("reads/s", "the same, as a number of reads"),
    "storage.seconds": ("readings", "readings of the disk's counters, about one a second"),
    "storage.mb_spread": ("", "from the slow fifth of these seconds to the fast fifth, in bytes read, over the median"),
    "storage.reads_spread": ("", "the same in reads"),
    "storage.queue_spread": ("", "the same in requests in flight"),
    "storage.volume_exceeded_share": ("", "share of the time in which the provider held back this volume"),
    "storage.instance_exceeded_share": ("", "share of the time in which the provider held back the machine's disks"),
    "storage.link_exceeded_s": ("packets/s", "packets beyond what the provider lets this machine receive"),
}

_NOT_SHOWN = frozenset(
    f"storage.{name}"
    for name in ("seconds", "mb_spread", "reads_spread", "queue_spread", "usual_mb_s", "usual_reads_s")
)


@dataclass(frozen=True, slots=True)
class DataMount:
    """The file system that the training data lies on. `network` None: cannot be told. `disk` None: no disk of this host."""

    mount_point: str
    fs_type: str
    device: str
    network: bool | None
    disk: str | None
    below: tuple[str, ...] = ()  # the disks that carry it, where it is no disk itself
    seeks: bool | None = None  # as the kernel thinks
    model: str = ""

    @property
    def words(self) -> str:
        """`/data (ext4 on nvme1n1)`, `/data (nfs4 from server:/export)`."""
        if self.disk is None:
            return f"{self.mount_point} ({self.fs_type} from {self.device})" if self.network else self.plain
        layers = f"{self.disk} over {', '.join(self.below)}" if self.below else self.disk
        return f"{self.mount_point} ({self.fs_type} on {layers})"

    @property
    def plain(self) -> str:
        return f"{self.mount_point} ({self.fs_type})"


def storage_facts(mount: DataMount | None, values: Mapping[tuple[str, str], float]) -> dict[str, dict[str, str]]:
    """For the report: what the data lies on and what it did, in words; empty where nothing is known."""
    written = {
        "mount": mount.words if mount else "",
        "network": {True: "yes", False: "no", None: "cannot be told from here"}[mount.network] if mount else "",
        "device": mount.model if mount else "",
    }
    for name, (unit, _) in STORAGE_VALUES.items():
        value = values.get((name, "job"))
        if value is not None and name not in _NOT_SHOWN:
            words = share(value) if name.endswith("_share") else quantity(value, unit)
            written[metric_words(name).removeprefix("storage ")] = words
    found = {key: text for key, text in written.items() if text}
    return {"storage": found} if found else {}
