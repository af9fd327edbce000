"""Shared by the rules on storage: whether a job waits for storage, the traffic meanwhile, and the gain from faster reads."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Evidence, Saving
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.measures.input_measures import (
    DATA_NETWORK_MOUNT,
    FETCH_BLOCKED_SHARE,
    FETCH_READ_MB,
    FETCH_WALL_S,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.measure import JobMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_BLOCKED,
    STORAGE_CACHE_HIT_SHARE,
    STORAGE_DEVICE_SHARE,
    STORAGE_EPOCH_MB,
    STORAGE_GROUP_ROOM_MB,
    STORAGE_HOST_ROOM_MB,
    STORAGE_IO_WAIT_SHARE,
    STORAGE_JOB_SHARE,
    STORAGE_LIMIT_MB_S,
    STORAGE_LIMIT_READS_S,
    STORAGE_READ_MB_S,
    STORAGE_READS_S,
    STORAGE_REQUEST_KB,
    STORAGE_SAMPLE_KB,
    STORAGE_USUAL_MB_S,
    STORAGE_USUAL_READS_S,
)
from rn50_advisor.rules.analysis_reading import batches_made, beside_batches, common, mean, model_of, training_loader
from rn50_advisor.rules.data_loading.input_starvation import making_waits
from rn50_advisor.rules.rule import Threshold, Thresholds

# Measures that all of these rules need: only with them do reads provably cost time.
NEEDS = (STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_BLOCKED_SHARE, FETCH_READ_MB, FETCH_WALL_S)
STARVED: Mapping[str, Threshold] = {
    "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
    "blocked": Threshold(0.50, "of making a batch: above it reading is the larger part"),
    "bytes_per_sample": Threshold(
        512.0, "one block of a device per sample: below it the page cache or memory serves the data"
    ),
}
NEAR = 0.90  # of a control group's limit: the last tenth is lost between its slices
# Blocked share of batch making if the job reads at its control group's limit, which accumulates credit while workers compute.
# Loaders blocked 0.36 of the time became 1.55 times as fast without it.
_BLOCKED_AT_LIMIT = 0.25
OWN_SHARE_MIN = 0.5  # of the disk's traffic: below it others take more than the job
_IDLE_DISK_SHARE_MAX = 0.2  # of the time that loaders are blocked
_WHOLE_SHARE = 0.9  # the file system reads besides the files, and there are always a few writes


def starved(a: Analysis, t: Thresholds) -> bool:
    """True if the job waits for input while its loaders are blocked on reads from a device or a network mount."""
    blocked = a.by_rank(FETCH_BLOCKED_SHARE)
    samples = a.get(STEP_SAMPLES) or 1.0
    reading = common(a.by_rank(FETCH_READ_MB)) * 1e6 / samples >= t["bytes_per_sample"] or over_network(a)
    waiting = common(making_waits(a)) >= t["input_wait"] * a.value(STEP_TIME_S)
    return waiting and common(blocked) >= blocked_enough(a, t) and reading and not blocked_elsewhere(a)


def blocked_enough(a: Analysis, t: Thresholds) -> float:
    """The share of making a batch that must be blocked for storage to be the cause."""
    return min(t["blocked"], _BLOCKED_AT_LIMIT) if group_limit(a) else t["blocked"]


def blocked_elsewhere(a: Analysis) -> bool:
    """True if the loaders sleep or wait for a lock: the disk is hardly busy, and the kernel sees no task waiting for one.

    If a limit delays reads before the disk, the kernel does see it: measured 0.3 and more of the blocked time, also with busy cores.
    """
    device, kernel, blocked = map(a.get, (STORAGE_DEVICE_SHARE, STORAGE_IO_WAIT_SHARE, STORAGE_BLOCKED))
    if device is None or kernel is None or blocked is None or over_network(a):
        return False
    return device < _IDLE_DISK_SHARE_MAX and kernel < 0.5 * _IDLE_DISK_SHARE_MAX * min(1.0, blocked)


def over_network(a: Analysis) -> bool:
    """True if the data set's mount is a network mount, or if samples are read from network storage and not from memory."""
    if any(value > 0 for value in a.by_rank(DATA_NETWORK_MOUNT).values()):
        return True
    asked_kb = a.get(STORAGE_SAMPLE_KB)
    read = asked_kb is None or 1e3 * asked_kb >= STARVED["bytes_per_sample"].value
    return bool(a.storage and a.storage.network) and read


def place_of(a: Analysis) -> str:
    """`/data (ext4 on sda)`; the data set's own path if no open file was found."""
    if a.storage is not None:
        return a.storage.words
    loader = training_loader(a, a.by_rank(STEP_INPUT_WAIT_S))
    mount = loader.mount if loader else None
    return f"{mount.get('mount_point')} ({mount.get('fs_type')})" if mount else "the data's device"


def traffic(a: Analysis) -> tuple[Evidence, ...]:
    """Evidence on MB/s, reads and their size, mean file and page cache, as far as measured."""
    found = []
    rate, reads, request = a.get(STORAGE_READ_MB_S), a.get(STORAGE_READS_S), a.get(STORAGE_REQUEST_KB)
    if rate is not None:
        note = f"from {place_of(a)}"
        if reads and request:
            note += f": {reads:.0f} reads/s of {request:.0f} KB"
        own = a.get(STORAGE_JOB_SHARE)
        if own is not None and own < _WHOLE_SHARE:
            note += f", {100 * own:.0f} % of it for this job"
        found.append(Evidence.of(STORAGE_READ_MB_S, rate, note=note))
    sample = a.get(STORAGE_SAMPLE_KB)
    if sample is not None:
        found.append(
            Evidence.of(STORAGE_SAMPLE_KB, sample, note="read for each sample: the mean file", form="explains")
        )
    hit = a.get(STORAGE_CACHE_HIT_SHARE)
    if hit is not None:
        found.append(
            Evidence.of(
                STORAGE_CACHE_HIT_SHARE,
                hit,
                note="of these bytes came from the page cache",
                unit="share",
                form="continues",
            )
        )
    return tuple(found)


def step_with_reads(a: Analysis, keep: float) -> float:
    """Step time if this share of the loaders' blocked time remained."""
    model, blocked, walls = model_of(a), a.by_rank(FETCH_BLOCKED_SHARE), a.by_rank(FETCH_WALL_S)
    workers, batches = a.by_rank(LOADER_WORKERS), batches_made(a)
    changes = {}
    for rank, share in blocked.items():
        start = beside_batches(a, rank)
        wait, gone = max(0.0, model.own[rank]["input_wait"] - start), share * (1.0 - keep)
        if workers.get(rank):  # workers work in parallel: the step gains only its share of a batch's saving
            gone *= batches.get(rank, 1.0) * walls.get(rank, mean(walls)) / workers[rank]
        else:
            gone *= wait
        changes[rank, "input_wait"] = start + max(0.0, wait - gone)
    return model.step_if(changes, floor_s=_least_step_s(model))


def saving_of_faster_storage(a: Analysis) -> Saving:
    """Saving of half of the wait for reads to all of it, limited by the batches' computing and the cores."""
    model = model_of(a)
    waits = {rank: model.own[rank]["input_wait"] for rank in a.by_rank(STEP_INPUT_WAIT_S)}
    least = {rank: _wait_without_reads(a, rank) for rank in waits}
    half = {rank: 0.5 * (least[rank] + wait) for rank, wait in waits.items()}
    best, worst = (
        model.step_if({(rank, "input_wait"): wait for rank, wait in left.items()}, floor_s=_least_step_s(model))
        for left in (least, half)
    )
    return model.saving(model.at_best(best), worst, "reads twice as fast or better")


def _wait_without_reads(a: Analysis, rank: int) -> float:
    """Seconds of a rank's input wait that remain with infinitely fast reads: the rest of making a batch takes as long as before."""
    model, shares, walls = model_of(a), a.by_rank(FETCH_BLOCKED_SHARE), a.by_rank(FETCH_WALL_S)
    start, wait = beside_batches(a, rank), model.own[rank]["input_wait"]
    making, workers = 1.0 - shares.get(rank, mean(shares)), a.get(LOADER_WORKERS, rank)
    if not workers:  # loading in the training process is not hidden
        return start + making * max(0.0, wait - start)
    rest = model.own_s(rank) - wait + model.wire_s
    every = walls.get(rank, mean(walls)) * batches_made(a).get(rank, 1.0) / workers
    return start + max(0.0, making * every - rest)


def _least_step_s(model: StepModel) -> float:
    """The shortest step that the cores allow, at most today's."""
    return min(model.cpu_floor_s(), model.step_s)


def own_rates(a: Analysis) -> tuple[float | None, float | None]:
    """MB/s and reads/s of the job in a usual second; the run's ends, with few reads, do not count."""
    share = a.get(STORAGE_JOB_SHARE)
    found = []
    for both in ((STORAGE_READ_MB_S, STORAGE_USUAL_MB_S), (STORAGE_READS_S, STORAGE_USUAL_READS_S)):
        rates = [rate for rate in map(a.get, both) if rate is not None]
        found.append(max(rates) * (1.0 if share is None else share) if rates else None)
    return found[0], found[1]


def group_limit(a: Analysis, near: float = NEAR) -> tuple[float, float, JobMeasure] | None:
    """(rate, limit, the limit's measure) if the job's reads come this close to its own control group's limit."""
    for rate, measure in zip(own_rates(a), (STORAGE_LIMIT_MB_S, STORAGE_LIMIT_READS_S), strict=True):
        most = a.get(measure)
        if rate is not None and most and rate >= near * most:
            return rate, most, measure
    return None


def only_memory_is_short(a: Analysis) -> bool:
    """True if the host could cache an epoch's data but the job's control group may not: then the limit is the cause, not the disk."""
    epoch, host, group = map(a.get, (STORAGE_EPOCH_MB, STORAGE_HOST_ROOM_MB, STORAGE_GROUP_ROOM_MB))
    return epoch is not None and host is not None and group is not None and group < epoch < host


def others_use_the_disk(a: Analysis) -> bool:
    """True if others cause most of the disk's traffic."""
    share = a.get(STORAGE_JOB_SHARE)
    return share is not None and share < OWN_SHARE_MIN
