"""Data loading: storage-bound.

What it does: finds training that waits for input while the workers (or the training process) are blocked on reads from
a device or a network mount.

Fires when: input wait is ≥ 5 %, and reads from a device or a network mount block at least half of making a batch (a quarter at the limit
of its control group).

Why it is slow: samples cannot be read as fast as they are consumed. The CPUs idle, and more workers only queue at the
same device.

Evidence: the input wait as a share of the step; the share of making a batch that is neither computing nor waiting for a
core (half, or a quarter if the job reads as fast as its control group allows); bytes read from a device per batch; for
the mount that holds the data, MB/s, the number and size of reads, the mean file size, and the share served from the
page cache.

Fix: move the data closer (local NVMe, RAM disk), pack it for larger sequential reads (tar shards, WebDataset, one file
per thousand samples), or make it smaller (pre-resized images).

Estimate: reads twice as fast or better. At best the input wait disappears, but no rank becomes faster than its workers
can compute their batches, and no step becomes shorter than the CPU work divided by the allowed cores.

False alarms: a cold first epoch resolves itself once the page cache holds the data. During that epoch the title says
so; afterwards only later epochs count, and a slow first epoch is reported as a note. Reads through FUSE or NFS report
no blocks, so the mount's type is used instead. A `sleep` or a lock in the dataset is not storage: it blocks with few or
no reads, and the kernel sees no task waiting for a disk (PSI). DAT010 (later epochs read the same files again), DSK001
(a saturated disk) and DSK002 (a limit) give more detail and are listed under this finding, unless they are its cause: a
memory limit too small for the data set, or another user of the disk.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_BLOCKED_SHARE,
    FETCH_READ_MB,
    FETCH_READ_MB_PER_S,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_COLD_LATER_READ_MB,
    EPOCH_COLD_LATER_WAIT_S,
    EPOCH_COLD_READ_MB,
    EPOCH_COLD_STEP_S,
    EPOCH_COLD_WAIT_S,
    EPOCH_STARTS,
    STEP_BATCHES,
    STEP_INPUT_WAIT_S,
    STEP_SAMPLES,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, lost_to_input, mean, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import read_for_nothing
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import (
    NEEDS,
    STARVED,
    blocked_enough,
    place_of,
    saving_of_faster_storage,
    starved,
    traffic,
)

_WARM_SHARE = 0.5  # of the first epoch's bytes: an epoch that reads more is not warm


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, blocked, read = input_waits(a), a.by_rank(FETCH_BLOCKED_SHARE), a.by_rank(FETCH_READ_MB)
    step, wait = a.value(STEP_TIME_S), common(waits)
    level = severity(wait / step)
    if not starved(a, t) or level is None:
        return _first_epoch_only(a, t) or Clear(RULE.id)
    loader = training_loader(a, waits)
    # an epoch that began within the steady steps is at least the second
    so_far = ", in the first epoch so far" if not any(a.by_rank(EPOCH_STARTS).values()) and _repeats(a) else ""
    return Finding(
        rule=RULE.id,
        title=f"Data loading: storage-bound on {place_of(a)}{so_far}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence.of(
                FETCH_BLOCKED_SHARE,
                mean(blocked),
                blocked_enough(a, t),
                "of batch preparation is blocked on I/O",
                form="continues",
            ),
            Evidence.of(
                FETCH_READ_MB,
                mean(read),
                t["bytes_per_sample"] * (a.get(STEP_SAMPLES) or 1.0) / 1e6,
                "from the device",
                form="explains",
            ),
            *(traffic(a) or _by_loaders(a)),
        ),
        fixes=(
            *_read_less(a, loader),
            Fix("put the data on local NVMe or in memory", "", where_of(loader), "outside the code"),
            Fix("use larger reads: tar shards or one file per many samples", "", where_of(loader), "larger change"),
        ),
        saving=saving_of_faster_storage(a),
    )


def _read_less(a: Analysis, loader: LoaderFacts | None) -> tuple[Fix, ...]:
    how = read_for_nothing(a)
    return (Fix("read less of each file", how.removesuffix("; "), where_of(loader), "small change"),) if how else ()


def _repeats(a: Analysis) -> bool:
    """Later epochs may follow and find the files in memory."""
    loader = training_loader(a, a.by_rank(STEP_INPUT_WAIT_S))
    return loader is not None and a.has(EPOCH_STARTS)


def _first_epoch_only(a: Analysis, t: Thresholds) -> Finding | None:
    """A note that only the first epoch waited for the disk; the steady steps come from warm epochs."""
    wait, later, step = map(a.get, (EPOCH_COLD_WAIT_S, EPOCH_COLD_LATER_WAIT_S, EPOCH_COLD_STEP_S))
    read, read_later = a.get(EPOCH_COLD_READ_MB), a.get(EPOCH_COLD_LATER_READ_MB)
    if wait is None or later is None or step is None or read is None or wait < t["input_wait"] * step:
        return None
    per_batch = t["bytes_per_sample"] * (a.get(STEP_SAMPLES) or 1.0) / max(mean(a.by_rank(STEP_BATCHES) or {0: 1}), 1)
    if read * 1e6 < per_batch or (read_later or 0.0) > _WARM_SHARE * read:
        return None
    loader = training_loader(a, a.by_rank(STEP_INPUT_WAIT_S))
    text = f"{duration(wait)} a step in the first epoch, {duration(later)} since"
    return Finding(
        rule=RULE.id,
        title=f"Data loading: storage-bound in the first epoch only, on {place_of(a)}",
        severity="info",
        confidence=confidence(a),
        seconds_per_step=0.0,
        evidence=(
            Evidence.of(EPOCH_COLD_WAIT_S, wait, t["input_wait"] * step, text),
            Evidence.of(
                EPOCH_COLD_READ_MB,
                read,
                per_batch / 1e6,
                "from the device in that epoch",
                form="explains",
            ),
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
    """Evidence from the loaders alone, for when no probe saw the disk."""
    rates = a.by_rank(FETCH_READ_MB_PER_S)
    if not rates:
        return ()
    rate = sum(rates.values()) * max(1.0, mean(a.by_rank(LOADER_WORKERS) or {0: 1.0}))
    note = f"from {place_of(a)}, all loaders together"
    return (Evidence.of(FETCH_READ_MB_PER_S, rate, note=note, form="continues"),)


RULE = rule(
    __name__,
    "Data loading: storage-bound",
    check,
    needs=NEEDS,
    thresholds=STARVED,
)
