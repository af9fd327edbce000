"""Disk saturated.

What it does: finds a disk that always has requests in flight, and more of them waiting, while the job waits for its
data.

Fires when: the disk is ≥ 90 % busy with a queue while input waits for reads.

Why it is slow: the disk is at its limit. More workers make the queue longer, not the reads faster. Other users of the
disk reduce what the job gets.

Evidence: the share of the time with a request in flight; the mean number of requests in flight; the time per read; the
job's share of the disk's traffic.

Fix: if the job itself saturates the disk, see DAT002. If others do, find them (`iotop -a`, `biotop`) and move them, or
the data.

Estimate: as in DAT002: reads twice as fast or better.

False alarms: a fast disk with a single reader is always busy but never saturated: therefore the rule looks at the
queue. Requests that a limit holds back never reach the disk (DSK002).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_BUSY_SHARE,
    STORAGE_JOB_SHARE,
    STORAGE_QUEUE,
    STORAGE_READ_S,
)
from rn50_advisor.rules.analysis_reading import common, lost_to_input, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import (
    NEEDS,
    OWN_SHARE_MIN,
    STARVED,
    others_use_the_disk,
    place_of,
    saving_of_faster_storage,
    starved,
)

_DISK_MEASURES = (STORAGE_BUSY_SHARE, STORAGE_QUEUE)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wait, step = common(input_waits(a)), a.value(STEP_TIME_S)
    level = severity(wait / step)
    if not starved(a, t) or level is None or (a.storage is not None and a.storage.disk is None):
        return Clear(RULE.id)
    missing = tuple(name for name in _DISK_MEASURES if not a.has(name))
    if missing:
        return NotMeasured(RULE.id, missing)
    busy, queue = (a.value(name) for name in _DISK_MEASURES)
    if busy < t["busy"] or queue < t["queue"]:
        return Clear(RULE.id)
    by_others = others_use_the_disk(a)
    disk = a.storage.disk if a.storage else "the data's disk"
    return Finding(
        rule=RULE.id,
        title=f"Disk saturated{' by other processes' if by_others else ''}: {disk}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence.of(
                STORAGE_BUSY_SHARE,
                busy,
                t["busy"],
                f"of the time {place_of(a)} has a read or write in flight",
                unit="share",
                form="continues",
            ),
            Evidence.of(STORAGE_QUEUE, queue, t["queue"], "in flight on average", form="explains"),
            *_reads(a),
            *_job_share(a),
        ),
        fixes=_fixes(a, str(disk), by_others=by_others),
        saving=saving_of_faster_storage(a),
    )


def _reads(a: Analysis) -> tuple[Evidence, ...]:
    took = a.get(STORAGE_READ_S)
    return () if took is None else (Evidence.of(STORAGE_READ_S, took, note="per read at the disk", form="explains"),)


def _job_share(a: Analysis) -> tuple[Evidence, ...]:
    own = a.get(STORAGE_JOB_SHARE)
    if own is None:
        return ()
    return (
        Evidence.of(
            STORAGE_JOB_SHARE, own, OWN_SHARE_MIN, "of the disk's bytes are the job's", unit="share", form="continues"
        ),
    )


def _fixes(a: Analysis, disk: str, *, by_others: bool) -> tuple[Fix, ...]:
    where = where_of(training_loader(a, a.by_rank(STEP_INPUT_WAIT_S)))
    if by_others:
        find = Fix(
            f"find the other users of {disk} and move them, or the data", "iotop -a, biotop", None, "outside the code"
        )
        return (find, Fix("put the data on a dedicated disk, or in memory", "", where, "outside the code"))
    return (Fix("put the data on local NVMe or in memory, or use larger reads", "", where, "outside the code"),)


RULE = rule(
    __name__,
    "Disk saturated",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "busy": Threshold(0.90, "of the time: a disk that is idle for a tenth of it could serve more"),
        "queue": Threshold(
            2.0, "requests in flight: one served and one waiting; below it, a single reader may keep a fast disk busy"
        ),
    },
    triage_checks=("disk.sequential_mb_per_s", "disk.small_reads_per_s"),
)
