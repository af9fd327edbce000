"""Measures the storage of the training data: its throughput during the steps, and the share of reads that the page cache served."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.storage.disk_readings import OfJob, disk_readings, requests
from rn50_advisor.advisor.analysis.storage.process_io import grown, readers_of
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.measures.input_measures import FETCH_BLOCKED_SHARE, FETCH_WALL_S
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured, Reasons
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_ASKED_MB_S,
    STORAGE_BLOCKED,
    STORAGE_CACHE_HIT_SHARE,
    STORAGE_DEVICE_SHARE,
    STORAGE_EPOCH_MB,
    STORAGE_GROUP_ROOM_MB,
    STORAGE_HOST_ROOM_MB,
    STORAGE_IO_WAIT_SHARE,
    STORAGE_LATER_EPOCHS,
    STORAGE_LATER_READ_SHARE,
    STORAGE_LINK_EXCEEDED_S,
    STORAGE_MOUNT_MB_S,
    STORAGE_MOUNT_READS_S,
    STORAGE_QUEUE,
    STORAGE_READ_MB_S,
    STORAGE_READ_S,
    STORAGE_READS_S,
    STORAGE_REREAD_SHARE,
    STORAGE_SAMPLE_KB,
)
from rn50_advisor.advisor.model.recording import Process

_ASKED_BYTES_MIN = 1e6  # bytes requested in total; with fewer, a share says nothing
_ASKED_RATIO_MIN = 0.5  # bytes requested over bytes read; below it, files are mapped into memory
_EPOCHS_MAX = 50  # epochs listed one by one
_MB = 1e6


def storage_values(
    window: Window, everything: Mapping[int, RankSteps], mounts: Sequence[DataMount], values: Measured
) -> Measured:
    """Measures `storage.*` of the job, as far as available.

    `values` has the measures of steps and of batch making. The first mount is described in full, others by their read rate.
    """
    found = Measured()
    readers, mount = readers_of(window.recording, everything), mounts[0] if mounts else None
    measured = _asked(window, readers, everything, found.missing)
    measured.update(_epochs(window, readers, everything, found.missing))
    measured.update(_free_for_cache(window))
    if mount is None:
        found.missing[STORAGE_READ_MB_S, JOB] = (
            "the storage of the data is unknown: no data file was seen open, no data set names a folder"
        )
    elif mount.disk is not None:
        measured.update(disk_readings(window, mount.disk, found.missing))
        measured.update(_blocked(window, measured, values))
    else:
        measured.update(_network_mount(window, mount, found.missing))
    if mount is None or mount.network is not False:
        measured.update(_link(window))
    found.update({(measure, JOB): value for measure, value in measured.items()})
    found.update(_hits_by_epoch(window, readers, everything))
    found.update(_beside(window, mounts[1:]))
    return found


def _beside(window: Window, mounts: Sequence[DataMount]) -> Measured:
    """`storage.mount_*`: read rates of further mounts."""
    found = Measured()
    for mount in mounts:
        kind, where = ("disk", mount.disk) if mount.disk is not None else ("mount", mount.mount_point)
        for measure, metric, factor in (
            (STORAGE_MOUNT_MB_S, "read_bytes", 1 / _MB),
            (STORAGE_MOUNT_READS_S, "reads", 1.0),
        ):
            rate = window.rate(f"{kind}.{metric}", f"{kind}:{where}")
            if rate is not None:
                found[measure, mount.mount_point] = rate * factor
    return found


def _blocked(window: Window, measured: OfJob, values: Measured) -> OfJob:
    """Time that loaders are blocked, and the shares that this disk and any disk explain. In the rest they wait for something else."""
    reads_s, read_s, step_s = measured.get(STORAGE_READS_S), measured.get(STORAGE_READ_S), values[STEP_TIME_S, JOB]
    blocked = sum(
        values.get((FETCH_BLOCKED_SHARE, rank), 0.0) * wall * values.get((STEP_BATCHES, rank), 1.0) / step_s
        for rank, wall in values.by_rank(FETCH_WALL_S).items()
    )
    more = {STORAGE_BLOCKED: blocked} if blocked > 0 else {}
    if reads_s is not None and read_s is not None and blocked > 0:
        more[STORAGE_DEVICE_SHARE] = reads_s * read_s / blocked
    waiting = window.rate("psi.io_some_s", "host")
    if waiting is not None:
        more[STORAGE_IO_WAIT_SHARE] = waiting
    return more


def _asked(window: Window, readers: Sequence[Process], everything: Mapping[int, RankSteps], missing: Reasons) -> OfJob:
    asked = grown(window.recording, readers, "proc.rchar_bytes", window.start_ns, window.end_ns)
    read = grown(window.recording, readers, "proc.read_bytes", window.start_ns, window.end_ns)
    if asked is None or read is None:
        missing[STORAGE_CACHE_HIT_SHARE, JOB] = "/proc/<pid>/io could not be read, or workers live too briefly for it"
        return {}
    if asked < _ASKED_RATIO_MIN * read:
        missing[STORAGE_CACHE_HIT_SHARE, JOB] = "files are mapped into memory, not read"
        return {}
    seconds = (window.end_ns - window.start_ns) / 1e9
    samples = sum(
        float(s.columns["samples"][(s.start_ns >= window.start_ns) & (s.end_ns <= window.end_ns)].sum())
        for s in everything.values()
    )
    found: OfJob = {STORAGE_ASKED_MB_S: asked / _MB / seconds}
    if samples:
        found[STORAGE_SAMPLE_KB] = asked / 1e3 / samples
    if asked < _ASKED_BYTES_MIN:
        missing[STORAGE_CACHE_HIT_SHARE, JOB] = "almost nothing was read from files"
        return found
    return {**found, STORAGE_CACHE_HIT_SHARE: max(0.0, 1.0 - read / asked)}


def _epochs(
    window: Window,
    readers: Sequence[Process],
    everything: Mapping[int, RankSteps],
    missing: Reasons,
) -> OfJob:
    """The first epoch's bytes, and the share of later epochs that was read from storage again; empty during the first epoch."""
    recording = window.recording
    begun = [s.start_ns[s.epoch_start] for s in everything.values()]
    if not begun or any(starts.size < 2 for starts in begun):
        missing[STORAGE_REREAD_SHARE, JOB] = "no second epoch was seen: what the page cache keeps is not known"
        return {}
    first, second = min(int(starts[0]) for starts in begun), max(int(starts[1]) for starts in begun)
    last = max(int(s.end_ns[-1]) for s in everything.values())
    asked = grown(recording, readers, "proc.rchar_bytes", first, second)
    again = grown(recording, readers, "proc.rchar_bytes", second, last)
    read = grown(recording, readers, "proc.read_bytes", second, last)
    if (
        asked is None
        or again is None
        or read is None
        or min(asked, again) < max(_ASKED_BYTES_MIN, _ASKED_RATIO_MIN * read)
    ):
        missing[STORAGE_REREAD_SHARE, JOB] = "what loaders read from files is not known (see storage.cache_hit_share)"
        return {}
    return {
        STORAGE_EPOCH_MB: asked / _MB,
        STORAGE_LATER_EPOCHS: again / asked,
        STORAGE_REREAD_SHARE: min(1.0, read / again),
        **_later_reads(window, readers, second, last),
    }


def _hits_by_epoch(window: Window, readers: Sequence[Process], everything: Mapping[int, RankSteps]) -> Measured:
    """`storage.cache_hit_share` of each whole epoch and of the last one so far, because cold and warm epochs differ."""
    begun = [s.start_ns[s.epoch_start] for s in everything.values()]
    count = min((starts.size for starts in begun), default=0)
    edges = [max(int(starts[number]) for starts in begun) for number in range(min(count, _EPOCHS_MAX))]
    edges += [max(int(s.end_ns[-1]) for s in everything.values())] if count and count <= _EPOCHS_MAX else []
    found = Measured()
    for number, (start_ns, end_ns) in enumerate(itertools.pairwise(edges)):
        asked = grown(window.recording, readers, "proc.rchar_bytes", start_ns, end_ns)
        read = grown(window.recording, readers, "proc.read_bytes", start_ns, end_ns)
        if asked is not None and read is not None and asked >= max(_ASKED_BYTES_MIN, _ASKED_RATIO_MIN * read):
            found[STORAGE_CACHE_HIT_SHARE, number] = max(0.0, 1.0 - read / asked)
    return found


def _later_reads(window: Window, readers: Sequence[Process], second_ns: int, last_ns: int) -> OfJob:
    """Share of the steady steps' reads that come after the first epoch. Only these can be cached."""
    read = grown(window.recording, readers, "proc.read_bytes", window.start_ns, window.end_ns)
    later = grown(window.recording, readers, "proc.read_bytes", max(second_ns, window.start_ns), last_ns)
    return {STORAGE_LATER_READ_SHARE: min(1.0, later / read)} if read and later is not None else {}


def _free_for_cache(window: Window) -> OfJob:
    """MB of memory that could cache files: on the host, and within the tightest memory limit of a rank."""
    found: OfJob = {}
    free = window.level("mem.available_bytes", "host")
    if free is not None:
        found[STORAGE_HOST_ROOM_MB] = free / _MB
    free_bytes = []
    for process in process_by_rank(window.recording.processes).values():
        scope = f"pid:{process.pid}"
        limit, used = window.level("cgroup.mem_limit_bytes", scope), window.level("cgroup.mem_used_bytes", scope)
        if limit is not None and used is not None:
            free_bytes.append(limit - used + (window.level("cgroup.mem_cache_bytes", scope) or 0.0))
    if free_bytes:
        found[STORAGE_GROUP_ROOM_MB] = max(0.0, min(free_bytes)) / _MB
    return found


def _network_mount(window: Window, mount: DataMount, missing: Reasons) -> OfJob:
    """Read measures of a network mount. NFS has counters; for other network file systems only the bytes requested are known."""
    scope = f"mount:{mount.mount_point}"
    read, reads = window.rate("mount.read_bytes", scope), window.rate("mount.reads", scope)
    if read is None or reads is None:
        missing[STORAGE_READ_MB_S, JOB] = f"{mount.fs_type} has no counters of what it fetches: see storage.asked_mb_s"
        return {}
    found: OfJob = {STORAGE_READ_MB_S: read / _MB, STORAGE_READS_S: reads}
    waited = window.growth("mount.read_wait_s", scope)
    found.update(requests(found, waited, window.growth("mount.reads", scope)))
    if waited is not None:
        found[STORAGE_QUEUE] = window.rate("mount.read_wait_s", scope) or 0.0
    asked = window.growth("mount.asked_bytes", scope)
    if asked is not None and asked >= _ASKED_BYTES_MIN:
        fetched = window.growth("mount.read_bytes", scope) or 0.0
        found[STORAGE_CACHE_HIT_SHARE] = max(0.0, 1.0 - fetched / asked)
        missing.pop((STORAGE_CACHE_HIT_SHARE, JOB), None)
    return found


def _link(window: Window) -> OfJob:
    """Packets per second beyond the provider's limit, where data comes or may come over a network."""
    rates = [window.rate("net.in_exceeded", scope) for scope in window.scopes("net.in_exceeded")]
    known = [rate for rate in rates if rate is not None]
    return {STORAGE_LINK_EXCEEDED_S: max(known)} if known else {}
