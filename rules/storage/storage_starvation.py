"""What the rules on storage share: when storage is what a job waits for, what it did meanwhile, and what faster reads would bring."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Evidence, Saving
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.rules.analysis_reading import batches_made, beside_batches, common, mean, model_of, training_loader
from rn50_advisor.rules.data_loading.input_starvation import making_waits
from rn50_advisor.rules.rule import Threshold, Thresholds

# What must hold before any of them speaks: then, and only then, do reads cost time.
NEEDS = ("step.time_s", "step.input_wait_s", "fetch.blocked_share", "fetch.read_mb", "fetch.wall_s")
STARVED: Mapping[str, Threshold] = {
    "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
    "blocked": Threshold(0.50, "more than half of making a batch is waiting: reading is the larger part"),
    "bytes_per_sample": Threshold(
        512.0, "one block of a device per sample: below it the page cache or memory serves the data"
    ),
}
NEAR = 0.90  # of a control group's limit: the last tenth is lost between its slices
# Of making a batch, where the job reads as fast as its control group may: such a limit saves up while workers compute, and is no less one.
# Loaders blocked 0.36 of the time became 1.55 times as fast without it.
_BLOCKED_AT_LIMIT = 0.25
OWN_PART = 0.5  # of the disk's traffic: with less, others take more than the job
_HARDLY = 0.2  # of the time that loaders are blocked
_ALL_OF_IT = 0.9  # the file system reads beside the files, and somebody always writes a little


def starved(a: Analysis, t: Thresholds) -> bool:
    """The job waits for input, and whoever makes it is blocked on reads from a device or a network mount."""
    blocked = a.by_rank("fetch.blocked_share")
    samples = a.get("step.samples") or 1.0
    reading = common(a.by_rank("fetch.read_mb")) * 1e6 / samples >= t["bytes_per_sample"] or over_network(a)
    waiting = common(making_waits(a)) >= t["input_wait"] * a.value("step.time_s")
    return waiting and common(blocked) >= blocked_enough(a, t) and reading and not blocked_elsewhere(a)


def blocked_enough(a: Analysis, t: Thresholds) -> float:
    """The share of making a batch that must be blocked."""
    return min(t["blocked"], _BLOCKED_AT_LIMIT) if group_limit(a) else t["blocked"]


def blocked_elsewhere(a: Analysis) -> bool:
    """Whoever makes batches sleeps or waits for a lock: the disk is hardly at work, and the kernel sees nobody wait for one.

    Where a limit holds reads back before the disk, the kernel does: measured 0.3 and more of the blocked time, also beside busy cores.
    """
    device, kernel, blocked = (a.get(f"storage.{name}") for name in ("device_share", "io_wait_share", "blocked"))
    if device is None or kernel is None or blocked is None or over_network(a):
        return False
    return device < _HARDLY and kernel < 0.5 * _HARDLY * min(1.0, blocked)


def over_network(a: Analysis) -> bool:
    """The data lies on a network mount, as far as is known, and is read from there: files in memory may have come from anywhere."""
    if any(value > 0 for value in a.by_rank("data.network_mount").values()):
        return True
    asked_kb = a.get("storage.sample_kb")
    read = asked_kb is None or 1e3 * asked_kb >= STARVED["bytes_per_sample"].value
    return bool(a.storage and a.storage.network) and read


def place_of(a: Analysis) -> str:
    """`/data (ext4 on sda)`; what the data set says of itself where nothing was seen open."""
    if a.storage is not None:
        return a.storage.words
    loader = training_loader(a, a.by_rank("step.input_wait_s"))
    mount = (loader.mount or {}) if loader else {}
    return f"{mount.get('mount_point')} ({mount.get('fs_type')})" if mount else "the data's device"


def traffic(a: Analysis) -> tuple[Evidence, ...]:
    """MB/s, reads and their size, mean file, page cache: what was measured of them."""
    found = []
    rate, reads, request = a.get("storage.read_mb_s"), a.get("storage.reads_s"), a.get("storage.request_kb")
    if rate is not None:
        note = f"from {place_of(a)}"
        if reads and request:
            note += f": {reads:.0f} reads/s of {request:.0f} KB"
        own = a.get("storage.job_share")
        if own is not None and own < _ALL_OF_IT:
            note += f", {100 * own:.0f} % of it for this job"
        found.append(Evidence("storage.read_mb_s", rate, "MB/s", None, note))
    sample = a.get("storage.sample_kb")
    if sample is not None:
        found.append(Evidence("storage.sample_kb", sample, "KB", None, "read for each sample: the mean file"))
    hit = a.get("storage.cache_hit_share")
    if hit is not None:
        found.append(Evidence("storage.cache_hit_share", hit, "share", None, "of these bytes came from the page cache"))
    return tuple(found)


def step_with_reads(a: Analysis, keep: float) -> float:
    """Step time if this share of the time that loaders are blocked remained."""
    model, blocked, walls = model_of(a), a.by_rank("fetch.blocked_share"), a.by_rank("fetch.wall_s")
    workers, batches = a.by_rank("loader.workers"), batches_made(a)
    changes = {}
    for rank, share in blocked.items():
        begin = beside_batches(a, rank)
        wait, gone = max(0.0, model.own[rank]["input_wait"] - begin), share * (1.0 - keep)
        if workers.get(rank):  # workers take turns: of what a batch takes less, the step feels its share
            gone *= batches.get(rank, 1.0) * walls.get(rank, mean(walls)) / workers[rank]
        else:
            gone *= wait
        changes[rank, "input_wait"] = begin + max(0.0, wait - gone)
    return model.step_if(changes, floor_s=_least_step_s(model))


def saving_of_faster_storage(a: Analysis) -> Saving:
    """From half of the wait for reads gone to all of it, never beyond what batches compute and what the cores allow."""
    model = model_of(a)
    waits = {rank: model.own[rank]["input_wait"] for rank in a.by_rank("step.input_wait_s")}
    least = {rank: _wait_without_reads(a, rank) for rank in waits}
    half = {rank: 0.5 * (least[rank] + wait) for rank, wait in waits.items()}
    best, worst = (
        model.step_if({(rank, "input_wait"): wait for rank, wait in left.items()}, floor_s=_least_step_s(model))
        for left in (least, half)
    )
    return model.saving(model.at_best(best), worst, "reads twice as fast or better")


def _wait_without_reads(a: Analysis, rank: int) -> float:
    """Seconds of a rank's wait for input that stay however fast it reads: the rest of making a batch takes as long as it did."""
    model, shares, walls = model_of(a), a.by_rank("fetch.blocked_share"), a.by_rank("fetch.wall_s")
    begin, wait = beside_batches(a, rank), model.own[rank]["input_wait"]
    making, workers = 1.0 - shares.get(rank, mean(shares)), a.get("loader.workers", rank)
    if not workers:  # in the training process nothing hides it
        return begin + making * max(0.0, wait - begin)
    rest = model.own_s(rank) - wait + model.wire_s
    every = walls.get(rank, mean(walls)) * batches_made(a).get(rank, 1.0) / workers
    return begin + max(0.0, making * every - rest)


def _least_step_s(model: StepModel) -> float:
    """What the cores allow; never more than a step takes now."""
    return min(model.cpu_floor_s(), model.step_s)


def own_rates(a: Analysis) -> tuple[float | None, float | None]:
    """MB/s and reads/s of the job in a usual second; the run's ends, where little is read, do not count."""
    share = a.get("storage.job_share")
    found = []
    for name in ("mb_s", "reads_s"):
        mean_rate, usual = (
            a.get("storage.read_mb_s" if name == "mb_s" else "storage.reads_s"),
            a.get(f"storage.usual_{name}"),
        )
        rates = [rate for rate in (mean_rate, usual) if rate is not None]
        found.append(max(rates) * (1.0 if share is None else share) if rates else None)
    return found[0], found[1]


def group_limit(a: Analysis, near: float = NEAR) -> tuple[float, float, str] | None:
    """(rate, limit, `mb_s` or `reads_s`) of the job's reads, where they come so near to what a control group of its own allows."""
    for rate, name in zip(own_rates(a), ("mb_s", "reads_s"), strict=True):
        most = a.get(f"storage.limit_{name}")
        if rate is not None and most and rate >= near * most:
            return rate, most, name
    return None


def only_memory_is_short(a: Analysis) -> bool:
    """The host could hold what an epoch reads and the job's control group may not: the limit is the cause, not the disk."""
    epoch, host, group = (a.get(f"storage.{name}") for name in ("epoch_mb", "host_room_mb", "group_room_mb"))
    return epoch is not None and host is not None and group is not None and group < epoch < host


def others_use_the_disk(a: Analysis) -> bool:
    """The most of it."""
    share = a.get("storage.job_share")
    return share is not None and share < OWN_PART
