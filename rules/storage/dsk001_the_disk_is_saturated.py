"""The disk is saturated.

What it does: finds a disk that has requests in flight all the time, and more of them waiting, while the job waits for its data.

Why it is slow: the disk serves what it can. More workers make the queue longer, not the reads faster. Who else uses the disk takes from
what the job gets.

Evidence: share of the time with a request in flight; how many are in flight on average; the time that a read takes; the job's share of the
disk's traffic.

Fix: by the job itself: see DAT002. By others: find them (`iotop -a`, `biotop`) and move them, or the data.

Estimate: as DAT002's: reads twice as fast or better.

False alarms: a fast disk with a single reader is always busy and never saturated: therefore the queue. Requests that a limit holds back
never reach the disk (DSK002).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import common, lost_to_input, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import (
    NEEDS,
    OWN_PART,
    STARVED,
    others_use_the_disk,
    place_of,
    saving_of_faster_storage,
    starved,
)

_DISK = ("storage.busy_share", "storage.queue")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wait, step = common(input_waits(a)), a.value("step.time_s")
    level = severity(wait / step)
    if not starved(a, t) or level is None or (a.storage is not None and a.storage.disk is None):
        return Clear(RULE.id)
    missing = tuple(name for name in _DISK if not a.has(name))
    if missing:
        return NotMeasured(RULE.id, missing)
    busy, queue = (a.value(name) for name in _DISK)
    if busy < t["busy"] or queue < t["queue"]:
        return Clear(RULE.id)
    by_others = others_use_the_disk(a)
    disk = a.storage.disk if a.storage else "the data's disk"
    return Finding(
        rule=RULE.id,
        title=f"The disk is saturated{' by other processes' if by_others else ''}: {disk}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence(
                "storage.busy_share",
                busy,
                "share",
                t["busy"],
                f"of the time {place_of(a)} has a read or write in flight",
            ),
            Evidence("storage.queue", queue, "requests", t["queue"], "in flight on average"),
            *_reads(a),
            *_job_share(a),
        ),
        fixes=_fixes(a, str(disk), by_others=by_others),
        saving=saving_of_faster_storage(a),
        explains=("DAT002", "DSK002") if by_others else (),
    )


def _reads(a: Analysis) -> tuple[Evidence, ...]:
    took = a.get("storage.read_s")
    return () if took is None else (Evidence("storage.read_s", took, "s", None, "that a read takes at the disk"),)


def _job_share(a: Analysis) -> tuple[Evidence, ...]:
    own = a.get("storage.job_share")
    if own is None:
        return ()
    return (Evidence("storage.job_share", own, "share", OWN_PART, "of the disk's bytes are the job's"),)


def _fixes(a: Analysis, disk: str, *, by_others: bool) -> tuple[Fix, ...]:
    where = where_of(training_loader(a, a.by_rank("step.input_wait_s")))
    if by_others:
        who = Fix(f"find who else uses {disk} and move it, or the data", "iotop -a, biotop", None, "outside the code")
        return (who, Fix("put the data on a disk of its own, or in memory", "", where, "outside the code"))
    return (Fix("put the data on local NVMe or in memory, or read larger pieces", "", where, "outside the code"),)


RULE = rule(
    __name__,
    "the disk is saturated",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "busy": Threshold(0.90, "a disk that rests a tenth of the time could serve more"),
        "queue": Threshold(2.0, "as many wait as are served: with fewer, one reader keeps a fast disk busy"),
    },
)
