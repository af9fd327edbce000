"""What the training data lies on, what that delivered while the steps ran, and how much came out of the page cache instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.analysis.host import Window, process_by_rank
from advisor.analysis.steady import RankSteps
from advisor.core.analysis import JOB, LoaderFacts, training_loader
from advisor.core.recording import Process, Recording, Series
from advisor.core.storage import DataMount

Array = NDArray[np.float64]
Values = dict[tuple[str, str], float]
Found = dict[str, float]

_FILES = 5  # seen open on a mount: more than a list of labels and a lock
_LEAST_BYTES = 1e6  # asked for in all: of less no share is worth telling
_UNMAPPED = 0.5  # bytes asked for over bytes read: with less, files are mapped into memory and nothing is asked
_SECONDS = 6  # readings: a spread of fewer is chance
_MB = 1e6


def data_mount(recording: Recording, ranks: Iterable[int], loaders: Sequence[LoaderFacts]) -> DataMount | None:
    """By the files that were seen open, else by what the data set says of itself; None where neither tells."""
    known = {e.data.get("mount_point"): _mount(e.data) for e in recording.events if e.kind == "data_mount"}
    files = {
        scope.partition(":")[2]: float(series.value[-1])
        for (metric, scope), series in recording.samples.items()
        if metric == "data.files" and series.value.size
    }
    most = max(files, key=lambda point: files[point], default=None)
    if most in known and files[str(most)] >= _FILES:
        return known[most]
    stated = [loader.mount for rank in ranks if (loader := training_loader(loaders, rank)) and loader.mount]
    return _mount(stated[0]) if stated else known.get(most)


def _mount(data: Mapping[str, Any]) -> DataMount:
    return DataMount(
        mount_point=str(data.get("mount_point", "")),
        fs_type=str(data.get("fs_type", "")),
        device=str(data.get("device", "")),
        network=data.get("network"),
        disk=data.get("disk"),
        below=tuple(data.get("below") or ()),
        seeks=data.get("seeks"),
        model=str(data.get("model") or ""),
    )


def storage_values(
    window: Window, everything: Mapping[int, RankSteps], mount: DataMount | None, missing: dict[str, str]
) -> Values:
    """`storage.*` of the job, as far as they could be had; why others could not is added to `missing`."""
    found: Found = {}
    readers = _readers(window.recording, everything)
    found.update(_asked(window, readers, everything, missing))
    found.update(_epochs(window.recording, readers, everything, missing))
    found.update(_room(window))
    if mount is None:
        missing["storage.read_mb_s"] = (
            "what the data lies on is not known: no data file was seen open, no data set names a folder"
        )
    elif mount.disk is not None:
        found.update(_disk(window, mount.disk, missing))
    else:
        found.update(_network_mount(window, mount, missing))
    if mount is None or mount.network is not False:
        found.update(_link(window))
    return {(name, JOB): value for name, value in found.items()}


def device_share(values: Values, step_s: float) -> Values:
    """Of the time that loaders were blocked, what the disk took for reads: the rest they waited elsewhere, before the disk."""
    reads_s, read_s = values.get(("storage.reads_s", JOB)), values.get(("storage.read_s", JOB))
    blocked = sum(
        values.get(("fetch.blocked_share", scope), 0.0) * value * values.get(("step.batches", scope), 1.0) / step_s
        for (name, scope), value in values.items()
        if name == "fetch.wall_s"
    )
    if reads_s is None or read_s is None or blocked <= 0:
        return {}
    return {("storage.device_share", JOB): reads_s * read_s / blocked}


def _readers(recording: Recording, everything: Mapping[int, RankSteps]) -> tuple[Process, ...]:
    """Whoever makes the batches: the workers of each rank, the rank itself where it has none."""
    ranks = process_by_rank(recording.processes)
    found = [p for p in recording.processes if p.role == "worker" and p.rank in everything]
    served = {p.rank for p in found}
    return (*found, *(ranks[rank] for rank in everything if rank in ranks and rank not in served))


def _asked(
    window: Window, readers: Sequence[Process], everything: Mapping[int, RankSteps], missing: dict[str, str]
) -> Found:
    asked = _grown(window.recording, readers, "proc.rchar_bytes", window.start_ns, window.end_ns)
    read = _grown(window.recording, readers, "proc.read_bytes", window.start_ns, window.end_ns)
    if asked is None or read is None:
        missing["storage.cache_hit_share"] = "/proc/<pid>/io could not be read, or workers live too briefly for it"
        return {}
    if asked < max(_LEAST_BYTES, _UNMAPPED * read):
        why = "files are mapped into memory, not read" if read > asked else "next to nothing was read from files"
        missing["storage.cache_hit_share"] = why
        return {}
    seconds = (window.end_ns - window.start_ns) / 1e9
    samples = sum(
        float(s.columns["samples"][(s.start_ns >= window.start_ns) & (s.end_ns <= window.end_ns)].sum())
        for s in everything.values()
    )
    found = {"storage.asked_mb_s": asked / _MB / seconds, "storage.cache_hit_share": max(0.0, 1.0 - read / asked)}
    if samples:
        found["storage.sample_kb"] = asked / 1e3 / samples
    return found


def _grown(recording: Recording, processes: Sequence[Process], metric: str, start_ns: int, end_ns: int) -> float | None:
    """Growth of a counter of processes together; one that began within the time had counted nothing before."""
    grown = []
    for process in processes:
        series = recording.samples.get((metric, f"pid:{process.pid}"))
        if series is not None and series.value.size:
            grown.append(_growth(series, process.first_seen_ns if process.role == "worker" else None, start_ns, end_ns))
    return sum(grown) if grown else None


def _growth(series: Series, born_ns: int | None, start_ns: int, end_ns: int) -> float:
    """Between two moments, between readings as if it had grown evenly."""
    total = np.concatenate([[0.0], np.cumsum(np.clip(np.diff(series.value), 0.0, None))])
    times = series.t_ns.astype(np.float64)
    if born_ns is not None and born_ns < times[0]:
        times = np.concatenate([[float(born_ns)], times])
        total = np.concatenate([[0.0], total + series.value[0]])
    began, ended = np.interp([float(start_ns), float(end_ns)], times, total)
    return float(ended - began)


def _epochs(
    recording: Recording,
    readers: Sequence[Process],
    everything: Mapping[int, RankSteps],
    missing: dict[str, str],
) -> Found:
    """The first epoch's bytes, and what of the later ones was read again; nothing while the first one lasts."""
    begun = [s.start_ns[s.epoch_start] for s in everything.values()]
    if not begun or any(starts.size < 2 for starts in begun):
        missing["storage.reread_share"] = "no second epoch was seen: what the page cache keeps cannot be told"
        return {}
    first, second = min(int(starts[0]) for starts in begun), max(int(starts[1]) for starts in begun)
    last = max(int(s.end_ns[-1]) for s in everything.values())
    asked = _grown(recording, readers, "proc.rchar_bytes", first, second)
    again = _grown(recording, readers, "proc.rchar_bytes", second, last)
    read = _grown(recording, readers, "proc.read_bytes", second, last)
    if asked is None or again is None or read is None or min(asked, again) < max(_LEAST_BYTES, _UNMAPPED * read):
        missing["storage.reread_share"] = "what loaders read from files is not known (see storage.cache_hit_share)"
        return {}
    return {
        "storage.epoch_mb": asked / _MB,
        "storage.later_epochs": again / asked,
        "storage.reread_share": min(1.0, read / again),
    }


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
    found.update(_spreads(window, scope))
    return found


def _job_share(window: Window, scope: str) -> Found:
    """Of the disk's bytes, read and written, what processes of the job caused."""
    all_of_it, own = 0.0, 0.0
    for kind in ("read", "write"):
        series = window.recording.samples.get((f"disk.{kind}_bytes", scope))
        if series is not None and series.value.size:
            all_of_it += _growth(series, None, window.start_ns, window.end_ns)
        processes, metric = window.recording.processes, f"proc.{kind}_bytes"
        grown = _grown(window.recording, processes, metric, window.start_ns, window.end_ns)
        if grown is None:
            return {}
        own += grown
    return {"storage.job_share": min(1.0, own / all_of_it)} if all_of_it > 0 else {}


def _requests(found: Found, waited_s: float | None, reads: float | None) -> Found:
    """Size and time of one read, where there were any."""
    more: Found = {}
    if found.get("storage.reads_s"):
        more["storage.request_kb"] = 1e3 * found["storage.read_mb_s"] / found["storage.reads_s"]
    if waited_s is not None and reads:
        more["storage.read_s"] = waited_s / reads
    return more


def _spreads(window: Window, scope: str) -> Found:
    """How even the seconds are: a limit holds each of them to the same."""
    found: Found = {}
    for name, metric in (("mb", "disk.read_bytes"), ("reads", "disk.reads"), ("queue", "disk.queue_s")):
        rates = _rates(window, metric, scope)
        if rates.size < _SECONDS or np.median(rates) <= 0:
            return {}
        low, high = np.percentile(rates, [10, 90])
        found[f"storage.{name}_spread"] = float((high - low) / np.median(rates))
        found["storage.seconds"] = float(rates.size)
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
