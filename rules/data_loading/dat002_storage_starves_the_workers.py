"""Storage starves the loader.

What it does: finds training that waits for input while whoever makes the batches is blocked on reads from a device or a network mount.

Why it is slow: the samples cannot be read as fast as they are consumed. The CPUs idle, and more workers queue at the same device.

Evidence: waiting for input as a share of the step; the share of making a batch that is neither computing nor waiting for a core (half, or
a quarter where the job reads as fast as its control group may); bytes read from a device per batch; of the mount that the data lies on the
MB/s, the number and size of reads, the mean file, and the share that the page cache served.

Fix: bring the data nearer (local NVMe, RAM disk), into larger sequential reads (tar shards, WebDataset, one file per thousand samples),
or make it smaller (pre-resized images).

Estimate: reads twice as fast or better. At best the step waits no more, but no rank is faster than its workers compute their batches, and
no step shorter than the CPU work over the allowed cores.

False alarms: a cold first epoch heals by itself once the page cache holds the data. While it lasts the title says so; afterwards only
later epochs count, and that the first one had to wait is a note. Reads through FUSE or NFS show no blocks: the mount's
type stands in. A `sleep` or lock in the dataset is not storage: it blocks without reads, or with few, and the kernel sees nobody wait for a
disk (PSI). DAT010 (later epochs read the same files again), DSK001 (a saturated disk) and DSK002 (a limit) look closer and are listed under
this one, unless they are its reason: a memory limit too small for the data set, or somebody else on the disk.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, lost_to_input, mean, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import (
    NEEDS,
    STARVED,
    blocked_enough,
    only_memory_is_short,
    others_use_the_disk,
    place_of,
    saving_of_faster_storage,
    starved,
    traffic,
)

_WARM_SHARE = 0.5  # of the first epoch's bytes: what reads more again is not warm


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, blocked, read = input_waits(a), a.by_rank("fetch.blocked_share"), a.by_rank("fetch.read_mb")
    step, wait = a.value("step.time_s"), common(waits)
    level = severity(wait / step)
    if not starved(a, t) or level is None:
        return _first_epoch_only(a, t) or Clear(RULE.id)
    loader = training_loader(a, waits)
    # one that began within the steady steps is the second one at least
    so_far = ", in the first epoch so far" if not any(a.by_rank("epoch.starts").values()) and _repeats(a) else ""
    return Finding(
        rule=RULE.id,
        title=f"Storage cannot deliver the samples: {place_of(a)}{so_far}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence(
                "fetch.blocked_share",
                mean(blocked),
                "",
                blocked_enough(a, t),
                "of making a batch is blocked, not computing",
            ),
            Evidence(
                "fetch.read_mb",
                mean(read),
                "MB",
                t["bytes_per_sample"] * (a.get("step.samples") or 1.0) / 1e6,
                "read from the device per batch",
            ),
            *(traffic(a) or _by_loaders(a)),
        ),
        fixes=(
            Fix("put the data on local NVMe or in memory", "", where_of(loader), "outside the code"),
            Fix("read larger pieces: tar shards or one file per many samples", "", where_of(loader), "larger change"),
        ),
        saving=saving_of_faster_storage(a),
        explains=_details(a),
    )


def _repeats(a: Analysis) -> bool:
    """Later epochs may come, and find the files in memory."""
    loader = training_loader(a, a.by_rank("step.input_wait_s"))
    return loader is not None and a.has("epoch.starts")


def _first_epoch_only(a: Analysis, t: Thresholds) -> Finding | None:
    """Steady steps are those of warm epochs: that the first one waited for the disk is worth a word, no more."""
    wait, later, step = (a.get(f"epoch.cold_{name}") for name in ("wait_s", "later_wait_s", "step_s"))
    read, read_later = a.get("epoch.cold_read_mb"), a.get("epoch.cold_later_read_mb")
    if wait is None or later is None or step is None or read is None or wait < t["input_wait"] * step:
        return None
    per_batch = (
        t["bytes_per_sample"] * (a.get("step.samples") or 1.0) / max(mean(a.by_rank("step.batches") or {0: 1}), 1)
    )
    if read * 1e6 < per_batch or (read_later or 0.0) > _WARM_SHARE * read:
        return None
    loader = training_loader(a, a.by_rank("step.input_wait_s"))
    text = f"{1000 * wait:.0f} ms a step in the first epoch, {1000 * later:.0f} ms since"
    return Finding(
        rule=RULE.id,
        title=f"Storage starved the loader in the first epoch only: {place_of(a)}",
        severity="info",
        confidence=confidence(a),
        seconds_per_step=0.0,
        evidence=(
            Evidence("epoch.cold_wait_s", wait, "s", t["input_wait"] * step, text),
            Evidence("epoch.cold_read_mb", read, "MB", per_batch / 1e6, "read from the device per batch in that epoch"),
        ),
        fixes=(
            Fix(
                "read the files once before training, or keep them on local NVMe",
                "",
                where_of(loader),
                "outside the code",
            ),
        ),
        saving=None,
    )


def _by_loaders(a: Analysis) -> tuple[Evidence, ...]:
    """Where no probe saw the disk."""
    rates = a.by_rank("fetch.read_mb_per_s")
    if not rates:
        return ()
    rate = sum(rates.values()) * max(1.0, mean(a.by_rank("loader.workers") or {0: 1.0}))
    return (Evidence("fetch.read_mb_per_s", rate, "MB/s", None, f"from {place_of(a)}, all loaders together"),)


def _details(a: Analysis) -> tuple[str, ...]:
    """What says more of this storage belongs under it, unless it is the reason itself: a memory limit, or somebody else on the disk."""
    details = ["DSK002"]
    details += [] if others_use_the_disk(a) else ["DSK001"]
    return tuple(details if only_memory_is_short(a) else ["DAT010", *details])


RULE = rule(
    __name__,
    "storage starves the loader",
    check,
    needs=NEEDS,
    # a device that all share is not shared fairly: one rank may starve more than the others
    explains=("DAT001", "DAT003", "DAT004", "DAT008", "DAT009", "COM002"),
    thresholds=STARVED,
)
