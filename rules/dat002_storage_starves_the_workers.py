"""Storage starves the loader.

What it does: finds training that waits for input while whoever makes the batches is blocked on reads from a device or a network mount.

Why it is slow: the samples cannot be read as fast as they are consumed. The CPUs idle, and more workers queue at the same device.

Evidence: waiting for input as a share of the step; the share of making a batch that is neither computing nor waiting for a core; bytes
read from a device per batch; MB/s per worker and in all.

Fix: bring the data nearer (local NVMe, RAM disk), into larger sequential reads (tar shards, WebDataset, one file per thousand samples),
or make it smaller (pre-resized images).

Estimate: the step without input wait is the ceiling, the next capacity caps it.

False alarms: a cold first epoch heals by itself once the page cache holds the data. Reads through FUSE or NFS show no blocks: the mount's
type stands in. A `sleep` or lock in the dataset blocks without any read and is not storage.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.reading import common, input_evidence, lost_to_input, mean, model_of, training_loader, where_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, blocked, read = a.by_rank("step.input_wait_s"), a.by_rank("fetch.blocked_share"), a.by_rank("fetch.read_mb")
    step, wait = a.value("step.time_s"), common(waits)
    network = any(value > 0 for value in a.by_rank("data.network_mount").values())
    samples = a.get("step.samples") or 1.0
    reading = common(read) * 1e6 / samples >= t["bytes_per_sample"] or network
    level = severity(wait / step)
    if wait < t["input_wait"] * step or common(blocked) < t["blocked"] or not reading or level is None:
        return Clear(RULE.id)
    model, loader = model_of(a), training_loader(a, waits)
    mount = (loader.mount or {}) if loader else {}
    place = f"{mount.get('mount_point')} ({mount.get('fs_type')})" if mount else "the data's device"
    rate = sum(a.by_rank("fetch.read_mb_per_s").values()) * max(1.0, mean(a.by_rank("loader.workers") or {0: 1.0}))
    # in the training process the computing part of loading stays; workers hide theirs behind the step
    workers, share = a.by_rank("loader.workers"), mean(blocked)
    stays = {r: model.own[r]["input_wait"] * (0.0 if workers.get(r) else 1 - share) for r in waits}
    ceiling = {(r, "input_wait"): stays[r] for r in waits}
    half = {(r, "input_wait"): 0.5 * (stays[r] + model.own[r]["input_wait"]) for r in waits}
    return Finding(
        rule=RULE.id,
        title=f"Storage cannot deliver the samples: {place}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence(
                "fetch.blocked_share", mean(blocked), "", t["blocked"], "of making a batch is blocked, not computing"
            ),
            Evidence(
                "fetch.read_mb",
                mean(read),
                "MB",
                t["bytes_per_sample"] * samples / 1e6,
                "read from the device per batch",
            ),
            Evidence("fetch.read_mb_per_s", rate, "MB/s", None, f"from {place}, all loaders together"),
        ),
        fixes=(
            Fix("put the data on local NVMe or in memory", "", where_of(loader), "outside the code"),
            Fix("read larger pieces: tar shards or one file per many samples", "", where_of(loader), "larger change"),
        ),
        saving=model.saving(model.step_if(ceiling), model.step_if(half), "reads twice as fast or better"),
    )


RULE = rule(
    __name__,
    "storage starves the loader",
    check,
    needs=("step.time_s", "step.input_wait_s", "fetch.blocked_share", "fetch.read_mb"),
    # a device that all share is not shared fairly: one rank may starve more than the others
    explains=("DAT001", "DAT003", "DAT004", "DAT008", "DAT009", "COM002"),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "blocked": Threshold(0.50, "more than half of making a batch is waiting: reading is the larger part"),
        "bytes_per_sample": Threshold(
            512.0, "one block of a device per sample: below it the page cache or memory serves the data"
        ),
    },
)
