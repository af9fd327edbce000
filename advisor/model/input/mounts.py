"""Storage as a job uses it: what its data lies on, in words, and the names of the numbers that belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.wording.quantities import quantity, share

# Values of the whole job (as rn50_advisor.advisor.model.values.VALUES): over the steady steps unless they say otherwise.
STORAGE_VALUES: dict[str, tuple[str, str]] = {
    "storage.read_mb_s": ("MB/s", "read from the disk or the server that the data lies on"),
    "storage.reads_s": ("reads/s", "read requests to it"),
    "storage.mount_mb_s": (
        "MB/s",
        "read from the disk or the server of a further mount with data, whose path is the scope",
    ),
    "storage.mount_reads_s": ("reads/s", "read requests to that"),
    "storage.usual_mb_s": ("MB/s", "read in the median second"),
    "storage.usual_reads_s": ("reads/s", "read requests in the median second"),
    "storage.request_kb": ("KB", "mean size of such a request"),
    "storage.read_s": ("s", "mean time that a read request took"),
    "storage.queue": ("requests", "requests in flight on average"),
    "storage.busy_share": ("", "share of the time with a request in flight"),
    "storage.job_share": ("", "share of the disk's traffic that the job caused"),
    "storage.device_share": ("", "of the time that loaders were blocked, what the disk took for their reads"),
    "storage.blocked": ("processes", "loaders that are blocked at any time, on average"),
    "storage.io_wait_share": ("", "share of the time in which anybody on the host waits for a disk (PSI)"),
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
    "storage.mb_spread": ("", "from the median of these seconds to the fast tenth, in bytes read, over the median"),
    "storage.reads_spread": ("", "the same in reads"),
    "storage.volume_exceeded_share": ("", "share of the time in which the provider held back this volume"),
    "storage.instance_exceeded_share": ("", "share of the time in which the provider held back the machine's disks"),
    "storage.link_exceeded_s": ("packets/s", "packets beyond what the provider lets this machine receive"),
}

_MB = 1e6
_EPOCHS_SHOWN = 8
_SHOWN = 8  # mounts


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


def storage_facts(mounts: Sequence[DataMount], values: Mapping[tuple[str, str], float]) -> dict[str, dict[str, str]]:
    """For the report: what the data lies on and what it did, in words; of further mounts a row each. Empty where nothing is known."""

    def told(name: str, unit: str, words: str) -> str:
        value = values.get((f"storage.{name}", "job"))
        if value is None:
            return ""
        value *= _MB if unit == "bytes" else 1.0
        return words.format(share(value) if unit == "share" else quantity(value, unit))

    lines = {
        "lies on": tuple(_place(mount) for mount in mounts[:1]),
        **{
            f"also on{'' if n == 1 else f' ({n})'}": _beside(mount, values)
            for n, mount in enumerate(mounts[1:_SHOWN], 1)
        },
        "reads": (
            told("read_mb_s", "MB/s", "{}"),
            told("reads_s", "reads/s", "{}"),
            told("request_kb", "KB", "{} each"),
            told("read_s", "s", "in {}"),
        ),
        "disk": (
            told("busy_share", "share", "{} busy"),
            told("queue", "requests", "{} in flight"),
            told("job_share", "share", "{} of its traffic is this job's"),
            told("limit_mb_s", "MB/s", "a control group allows {}"),
            told("limit_reads_s", "reads/s", "a control group allows {}"),
            told("volume_exceeded_share", "share", "held back by the provider {} of the time"),
        ),
        "page cache": (
            told("cache_hit_share", "share", "{} of the bytes asked for"),
            told("reread_share", "share", "later epochs read {} again"),
            _by_epoch(values),
        ),
        "data": (told("sample_kb", "KB", "{} a sample"), told("epoch_mb", "bytes", "{} an epoch")),
        "room for files": (
            told("host_room_mb", "bytes", "{} on this host"),
            told("group_room_mb", "bytes", "{} in its control group"),
        ),
    }
    found = {label: ", ".join(part for part in parts if part) for label, parts in lines.items()}
    found = {label: text for label, text in found.items() if text}
    return {"storage": found} if set(found) - {"room for files"} else {}


def _by_epoch(values: Mapping[tuple[str, str], float]) -> str:
    """The first epochs one by one, where there are several."""
    hits = [values.get(("storage.cache_hit_share", f"epoch:{number}")) for number in range(_EPOCHS_SHOWN)]
    known = [share(hit) for hit in hits if hit is not None]
    return f"by epoch {', '.join(known)}" if len(known) > 1 else ""


def _beside(mount: DataMount, values: Mapping[tuple[str, str], float]) -> tuple[str, ...]:
    """Where it lies, and how fast it is read."""
    rates = [
        quantity(rate, unit)
        for name, unit in (("mb_s", "MB/s"), ("reads_s", "reads/s"))
        if (rate := values.get((f"storage.mount_{name}", f"mount:{mount.mount_point}"))) is not None
    ]
    return _place(mount), *rates


def _place(mount: DataMount) -> str:
    network = {True: ", over a network", False: "", None: ", which may be another machine's or this host's"}[
        mount.network
    ]
    return mount.words + network + (f", {mount.model}" if mount.model else "")
