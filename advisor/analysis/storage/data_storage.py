"""What the training data lies on, what that delivered while the steps ran, and how much came out of the page cache instead."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.process_io import grown, growth, readers_of
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.recording import Process

Array = NDArray[np.float64]
Values = dict[tuple[str, str], float]
Found = dict[str, float]

_LEAST_BYTES = 1e6  # asked for in all: of less no share is worth telling
_UNMAPPED = 0.5  # bytes asked for over bytes read: with less, files are mapped into memory and nothing is asked
_USUAL, _SECONDS = 3, 6  # readings: for a median, and for a spread; of fewer they are chance
_EPOCHS = 50  # told one by one
_MB = 1e6


def storage_values(
    window: Window,
    everything: Mapping[int, RankSteps],
    mounts: Sequence[DataMount],
    values: Values,
    missing: dict[str, str],
) -> Values:
    """`storage.*` of the job, as far as they could be had; why others could not is added to `missing`.

    `values` has what is known of steps and of the making of batches; of the first mount everything is told, of others how fast they read.
    """
    found: Found = {}
    readers, mount = readers_of(window.recording, everything), mounts[0] if mounts else None
    found.update(_asked(window, readers, everything, missing))
    found.update(_epochs(window, readers, everything, missing))
    found.update(_room(window))
    if mount is None:
        missing["storage.read_mb_s"] = (
            "what the data lies on is not known: no data file was seen open, no data set names a folder"
        )
    elif mount.disk is not None:
        found.update(_disk(window, mount.disk, missing))
        found.update(_blocked(window, found, values))
    else:
        found.update(_network_mount(window, mount, missing))
    if mount is None or mount.network is not False:
        found.update(_link(window))
    by_epoch = _hits_by_epoch(window, readers, everything)
    return {**{(name, JOB): value for name, value in found.items()}, **by_epoch, **_beside(window, mounts[1:])}


def _beside(window: Window, mounts: Sequence[DataMount]) -> Values:
    """`storage.mount_*` of scope `mount:PATH`: how fast further mounts are read."""
    found: Values = {}
    for mount in mounts:
        kind, where = ("disk", mount.disk) if mount.disk is not None else ("mount", mount.mount_point)
        for name, metric, factor in (("mb_s", "read_bytes", 1 / _MB), ("reads_s", "reads", 1.0)):
            rate = window.rate(f"{kind}.{metric}", f"{kind}:{where}")
            if rate is not None:
                found[f"storage.mount_{name}", f"mount:{mount.mount_point}"] = rate * factor
    return found


def _blocked(window: Window, found: Found, values: Values) -> Found:
    """How long loaders are blocked, and how much of it the disk and any disk accounts for: the rest they wait for something else."""
    reads_s, read_s, step_s = found.get("storage.reads_s"), found.get("storage.read_s"), values["step.time_s", JOB]
    blocked = sum(
        values.get(("fetch.blocked_share", scope), 0.0) * value * values.get(("step.batches", scope), 1.0) / step_s
        for (name, scope), value in values.items()
        if name == "fetch.wall_s"
    )
    more = {"storage.blocked": blocked} if blocked > 0 else {}
    if reads_s is not None and read_s is not None and blocked > 0:
        more["storage.device_share"] = reads_s * read_s / blocked
    waiting = window.rate("psi.io_some_s", "host")
    if waiting is not None:
        more["storage.io_wait_share"] = waiting
    return more


def _asked(
    window: Window, readers: Sequence[Process], everything: Mapping[int, RankSteps], missing: dict[str, str]
) -> Found:
    asked = grown(window.recording, readers, "proc.rchar_bytes", window.start_ns, window.end_ns)
    read = grown(window.recording, readers, "proc.read_bytes", window.start_ns, window.end_ns)
    if asked is None or read is None:
        missing["storage.cache_hit_share"] = "/proc/<pid>/io could not be read, or workers live too briefly for it"
        return {}
    if asked < _UNMAPPED * read:
        missing["storage.cache_hit_share"] = "files are mapped into memory, not read"
        return {}
    seconds = (window.end_ns - window.start_ns) / 1e9
    samples = sum(
        float(s.columns["samples"][(s.start_ns >= window.start_ns) & (s.end_ns <= window.end_ns)].sum())
        for s in everything.values()
    )
    found = {"storage.asked_mb_s": asked / _MB / seconds}
    if samples:
        found["storage.sample_kb"] = asked / 1e3 / samples
    if asked < _LEAST_BYTES:
        missing["storage.cache_hit_share"] = "next to nothing was read from files"
        return found
    return {**found, "storage.cache_hit_share": max(0.0, 1.0 - read / asked)}


def _epochs(
    window: Window,
    readers: Sequence[Process],
    everything: Mapping[int, RankSteps],
    missing: dict[str, str],
) -> Found:
    """The first epoch's bytes, and what of the later ones was read again; nothing while the first one lasts."""
    recording = window.recording
    begun = [s.start_ns[s.epoch_start] for s in everything.values()]
    if not begun or any(starts.size < 2 for starts in begun):
        missing["storage.reread_share"] = "no second epoch was seen: what the page cache keeps cannot be told"
        return {}
    first, second = min(int(starts[0]) for starts in begun), max(int(starts[1]) for starts in begun)
    last = max(int(s.end_ns[-1]) for s in everything.values())
    asked = grown(recording, readers, "proc.rchar_bytes", first, second)
    again = grown(recording, readers, "proc.rchar_bytes", second, last)
    read = grown(recording, readers, "proc.read_bytes", second, last)
    if asked is None or again is None or read is None or min(asked, again) < max(_LEAST_BYTES, _UNMAPPED * read):
        missing["storage.reread_share"] = "what loaders read from files is not known (see storage.cache_hit_share)"
        return {}
    return {
        "storage.epoch_mb": asked / _MB,
        "storage.later_epochs": again / asked,
        "storage.reread_share": min(1.0, read / again),
        **_later_reads(window, readers, second, last),
    }


def _hits_by_epoch(window: Window, readers: Sequence[Process], everything: Mapping[int, RankSteps]) -> Values:
    """`storage.cache_hit_share` of scope `epoch:N`, whole epochs and the last one so far; cold and warm ones differ."""
    begun = [s.start_ns[s.epoch_start] for s in everything.values()]
    count = min((starts.size for starts in begun), default=0)
    edges = [max(int(starts[number]) for starts in begun) for number in range(min(count, _EPOCHS))]
    edges += [max(int(s.end_ns[-1]) for s in everything.values())] if count and count <= _EPOCHS else []
    found: Values = {}
    for number, (start_ns, end_ns) in enumerate(itertools.pairwise(edges)):
        asked = grown(window.recording, readers, "proc.rchar_bytes", start_ns, end_ns)
        read = grown(window.recording, readers, "proc.read_bytes", start_ns, end_ns)
        if asked is not None and read is not None and asked >= max(_LEAST_BYTES, _UNMAPPED * read):
            found["storage.cache_hit_share", f"epoch:{number}"] = max(0.0, 1.0 - read / asked)
    return found


def _later_reads(window: Window, readers: Sequence[Process], second_ns: int, last_ns: int) -> Found:
    """Of what the steady steps read from storage, the part that the first epoch has no share in: only that can be kept."""
    read = grown(window.recording, readers, "proc.read_bytes", window.start_ns, window.end_ns)
    later = grown(window.recording, readers, "proc.read_bytes", max(second_ns, window.start_ns), last_ns)
    return {"storage.later_read_share": min(1.0, later / read)} if read and later is not None else {}


def _room(window: Window) -> Found:
    """What could hold files: of the host, and within the tightest memory limit above a rank."""
    found: Found = {}
    free = window.level("mem.available_bytes", "host")
    if free is not None:
        found["storage.host_room_mb"] = free / _MB
    rooms = []
    for process in process_by_rank(window.recording.processes).values():
        scope = f"pid:{process.pid}"
        limit, used = window.level("cgroup.mem_limit_bytes", scope), window.level("cgroup.mem_used_bytes", scope)
        if limit is not None and used is not None:
            rooms.append(limit - used + (window.level("cgroup.mem_cache_bytes", scope) or 0.0))
    if rooms:
        found["storage.group_room_mb"] = max(0.0, min(rooms)) / _MB
    return found


def _disk(window: Window, disk: str, missing: dict[str, str]) -> Found:
    scope = f"disk:{disk}"
    names = {
        "storage.read_mb_s": ("disk.read_bytes", 1 / _MB),
        "storage.reads_s": ("disk.reads", 1.0),
        "storage.busy_share": ("disk.busy_s", 1.0),
        "storage.queue": ("disk.queue_s", 1.0),
        "storage.volume_exceeded_share": ("disk.volume_exceeded_s", 1.0),
        "storage.instance_exceeded_share": ("disk.instance_exceeded_s", 1.0),
    }
    rates = {name: (window.rate(metric, scope), factor) for name, (metric, factor) in names.items()}
    found = {name: rate * factor for name, (rate, factor) in rates.items() if rate is not None}
    if "storage.read_mb_s" not in found:
        missing["storage.read_mb_s"] = f"/proc/diskstats tells nothing of {disk}"
        return found
    waited, reads = window.growth("disk.read_wait_s", scope), window.growth("disk.reads", scope)
    found.update(_requests(found, waited, reads))
    for name, metric, factor in (
        ("limit_mb_s", "limit_read_bytes_s", 1 / _MB),
        ("limit_reads_s", "limit_reads_s", 1.0),
    ):
        most = window.level(f"disk.{metric}", scope)
        if most is not None:
            found[f"storage.{name}"] = most * factor
    found.update(_job_share(window, scope))
    found.update(_seconds(window, scope))
    return found


def _job_share(window: Window, scope: str) -> Found:
    """Of the disk's bytes, read and written, what processes of the job caused."""
    all_of_it, own = 0.0, 0.0
    for kind in ("read", "write"):
        series = window.recording.samples.get((f"disk.{kind}_bytes", scope))
        if series is not None and series.value.size:
            all_of_it += growth(series, None, window.start_ns, window.end_ns)
        processes, metric = window.recording.processes, f"proc.{kind}_bytes"
        caused = grown(window.recording, processes, metric, window.start_ns, window.end_ns)
        if caused is None:
            return {}
        own += caused
    return {"storage.job_share": min(1.0, own / all_of_it)} if all_of_it > 0 else {}


def _requests(found: Found, waited_s: float | None, reads: float | None) -> Found:
    """Size and time of one read, where there were any."""
    more: Found = {}
    if found.get("storage.reads_s"):
        more["storage.request_kb"] = 1e3 * found["storage.read_mb_s"] / found["storage.reads_s"]
    if waited_s is not None and reads:
        more["storage.read_s"] = waited_s / reads
    return more


def _seconds(window: Window, scope: str) -> Found:
    """The median second, and how even they are: a limit holds each of them to the same."""
    rates = {
        name: _rates(window, metric, scope) for name, metric in (("mb", "disk.read_bytes"), ("reads", "disk.reads"))
    }
    size = min(values.size for values in rates.values())
    if size < _USUAL:
        return {}
    middle = {name: float(np.median(values)) for name, values in rates.items()}
    found = {
        "storage.seconds": float(size),
        "storage.usual_mb_s": middle["mb"] / _MB,
        "storage.usual_reads_s": middle["reads"],
    }
    if size >= _SECONDS and min(middle.values()) > 0:
        for name, values in rates.items():
            # upwards only: under a limit a second may have less, when nothing is asked for, and none has more
            found[f"storage.{name}_spread"] = float(np.percentile(values, 90) - middle[name]) / middle[name]
    return found


def _rates(window: Window, metric: str, scope: str) -> Array:
    """Growth per second between readings that lie within the window."""
    series = window.recording.samples.get((metric, scope))
    if series is None:
        return np.empty(0)
    inside = (series.t_ns >= window.start_ns) & (series.t_ns <= window.end_ns)
    seconds = np.diff(series.t_ns[inside]) / 1e9
    return np.asarray(np.diff(series.value[inside])[seconds > 0] / seconds[seconds > 0])


def _network_mount(window: Window, mount: DataMount, missing: dict[str, str]) -> Found:
    """NFS keeps counters; of other network file systems only what was asked for is known."""
    scope = f"mount:{mount.mount_point}"
    read, reads = window.rate("mount.read_bytes", scope), window.rate("mount.reads", scope)
    if read is None or reads is None:
        missing["storage.read_mb_s"] = f"{mount.fs_type} keeps no counters of what it fetches: see storage.asked_mb_s"
        return {}
    found = {"storage.read_mb_s": read / _MB, "storage.reads_s": reads}
    waited = window.growth("mount.read_wait_s", scope)
    found.update(_requests(found, waited, window.growth("mount.reads", scope)))
    if waited is not None:
        found["storage.queue"] = window.rate("mount.read_wait_s", scope) or 0.0
    asked = window.growth("mount.asked_bytes", scope)
    if asked is not None and asked >= _LEAST_BYTES:
        fetched = window.growth("mount.read_bytes", scope) or 0.0
        found["storage.cache_hit_share"] = max(0.0, 1.0 - fetched / asked)
        missing.pop("storage.cache_hit_share", None)
    return found


def _link(window: Window) -> Found:
    """Packets beyond the provider's limit, where data comes over a network or may do so."""
    rates = [window.rate("net.in_exceeded", scope) for scope in window.scopes("net.in_exceeded")]
    known = [rate for rate in rates if rate is not None]
    return {"storage.link_exceeded_s": max(known)} if known else {}
