"""Volume throttled.

What it does: finds storage that is held at a limit while the job waits for its data: by its control group, according to
the provider's own counters, or judged by a rate so even that only a limit explains it.

Fires when: a control group's or provider's limit is reached, or the read rate is more even than without a limit.

Why it is slow: a limit allows the same number of bytes or reads in each second, for any number of readers. The disk
behind it could deliver more.

Evidence: the limit of the job's control group and how close to it the job reads; the time in which the provider
throttled the volume or the machine (EBS, ENA); or the same rate second after second, if it equals a number that volumes
are sold with, is more even than chance allows for so many reads, or occurs while the disk itself has little to do.

Fix: another class or size of volume (gp3 throughput and IOPS can be bought separately), or a larger machine if its own
limit applies; raise the control group's limit; local NVMe; if reads are counted, larger ones.

Estimate: as in DAT002: reads twice as fast or better.

False alarms: a job that needs no more also reads at an even rate, so the rule applies only while its loaders are
blocked on reads. Readers that take turns at a disk do so too, though not as evenly as a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_DEVICE_SHARE,
    STORAGE_INSTANCE_EXCEEDED_SHARE,
    STORAGE_LIMIT_READS_S,
    STORAGE_LINK_EXCEEDED_S,
    STORAGE_MB_SPREAD,
    STORAGE_READ_MB_S,
    STORAGE_READS_SPREAD,
    STORAGE_SECONDS,
    STORAGE_USUAL_MB_S,
    STORAGE_USUAL_READS_S,
    STORAGE_VOLUME_EXCEEDED_SHARE,
)
from rn50_advisor.rules.analysis_reading import common, lost_to_input, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import (
    NEAR,
    NEEDS,
    STARVED,
    group_limit,
    over_network,
    place_of,
    saving_of_faster_storage,
    starved,
)

# MB/s and reads/s that volumes are sold with (EBS gp2, gp3, st1; Azure and Google disks); bytes may be counted in MiB
_SOLD_MB_S = (25, 40, 50, 60, 100, 125, 128, 150, 200, 240, 250, 300, 350, 400, 500, 750, 900, 1000, 1200)
_SOLD_READS_S = (
    100,
    120,
    150,
    240,
    300,
    500,
    600,
    1000,
    1100,
    1500,
    2300,
    3000,
    4000,
    5000,
    6000,
    7500,
    10000,
    15000,
    16000,
)
_MIB = 1.048576
_RATE_ONLY_CONFIDENCE = 0.75  # of the usual confidence, for a rate alone


@dataclass(frozen=True, slots=True)
class _Limit:
    what: str  # for the title
    evidence: tuple[Evidence, ...]
    in_group: bool = False
    counted: bool = False  # reads, not bytes
    inferred: bool = False


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wait, step = common(input_waits(a)), a.value(STEP_TIME_S)
    level = severity(wait / step)
    if not starved(a, t) or level is None:
        return Clear(RULE.id)
    if not a.has(STORAGE_READ_MB_S) and not a.has(STORAGE_LINK_EXCEEDED_S):
        return NotMeasured(RULE.id, (STORAGE_READ_MB_S,))
    limit = _of_group(a, t) or _of_provider(a, t) or _flat(a, t)
    if limit is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Volume throttled: {limit.what}",
        severity=level,
        confidence=confidence(a, cap=_RATE_ONLY_CONFIDENCE if limit.inferred else 0.95),
        seconds_per_step=lost_to_input(a),
        evidence=(input_evidence(a, wait, t["input_wait"]), *limit.evidence),
        fixes=_fixes(a, limit),
        saving=saving_of_faster_storage(a),
    )


def _of_group(a: Analysis, t: Thresholds) -> _Limit | None:
    found = group_limit(a, t["near"])
    if found is None:
        return None
    rate, most, limit = found
    unit, counted = limit.unit, limit is STORAGE_LIMIT_READS_S
    note = f"of {most:.4g} {unit} that a control group of the job allows it to read from {place_of(a)}"
    evidence = Evidence.of(
        STORAGE_USUAL_READS_S if counted else STORAGE_USUAL_MB_S, rate, t["near"] * most, note, form="explains"
    )
    return _Limit(f"its control group allows {most:.4g} {unit}", (evidence,), True, counted)


def _of_provider(a: Analysis, t: Thresholds) -> _Limit | None:
    for measure, what in (
        (STORAGE_VOLUME_EXCEEDED_SHARE, "this volume"),
        (STORAGE_INSTANCE_EXCEEDED_SHARE, "the disks of this machine"),
    ):
        share = a.get(measure)
        if share is not None and share >= t["exceeded"]:
            note = f"of the time the provider throttled {what}"
            evidence = Evidence.of(measure, share, t["exceeded"], note, unit="share", form="continues")
            return _Limit(f"the provider throttles {what}", (evidence,))
    packets = a.get(STORAGE_LINK_EXCEEDED_S)
    if packets is not None and packets >= t["packets"] and over_network(a):
        note = "beyond what the provider allows this machine to receive: queued or dropped"
        evidence = Evidence.of(STORAGE_LINK_EXCEEDED_S, packets, t["packets"], note, form="continues")
        return _Limit("the provider limits what this machine receives", (evidence,))
    return None


def _flat(a: Analysis, t: Thresholds) -> _Limit | None:
    """A limit judged by an even rate; bytes are checked before reads, because files of one size make both even."""
    for usual, evenness, sold in (
        (STORAGE_USUAL_MB_S, STORAGE_MB_SPREAD, tuple(n * f for n in _SOLD_MB_S for f in (1.0, _MIB))),
        (STORAGE_USUAL_READS_S, STORAGE_READS_SPREAD, _SOLD_READS_S),
    ):
        rate, spread = a.get(usual), a.get(evenness)
        if spread is None or rate is None or spread > t["flat"]:
            continue
        why = _why_a_limit(a, t, rate, sold, spread)
        if why:
            note = f"between the median and the fastest tenth of {a.get(STORAGE_SECONDS) or 0:.0f} seconds, {why}"
            evidence = (
                Evidence.of(evenness, spread, t["flat"], note, unit="share"),
                Evidence.of(usual, rate, note=f"from {place_of(a)} in each second"),
            )
            counted = usual is STORAGE_USUAL_READS_S
            return _Limit(f"{rate:.3g} {usual.unit} in each second", evidence, False, counted, True)
    return None


def _why_a_limit(a: Analysis, t: Thresholds, rate: float, sold: tuple[float, ...], spread: float) -> str:
    """Evidence that an even rate is a limit and not readers taking turns at a steady disk; empty if there is none."""
    device, reads = a.get(STORAGE_DEVICE_SHARE), a.get(STORAGE_USUAL_READS_S)
    if device is not None and device <= t["device"]:
        return f"while the disk itself takes {100 * device:.0f} % of the time that loaders are blocked"
    if any(abs(rate - number) <= t["round"] * number for number in sold):
        return "equal to a provisioned rate that providers sell"
    if reads and spread * math.sqrt(reads) <= t["chance"]:
        return f"more even than {reads:.0f} reads a second are by chance"
    return ""


def _fixes(a: Analysis, limit: _Limit) -> tuple[Fix, ...]:
    where = where_of(training_loader(a, a.by_rank(STEP_INPUT_WAIT_S)))
    larger = Fix("use larger reads: tar shards or one file per many samples", "", where, "larger change")
    if limit.in_group:
        change = "docker run --device-read-bps / --device-read-iops, io.max, blkio.throttle"
        first = Fix("raise the control group's limit on reading", change, None, "outside the code")
    else:
        first = Fix(
            "a faster class of volume, or local NVMe", "gp3: provision throughput and IOPS", None, "outside the code"
        )
    return (first, larger) if limit.counted else (first,)


RULE = rule(
    __name__,
    "Volume throttled",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "near": Threshold(NEAR, "of the limit: a job seldom reaches the last tenth (the limit works in time slices)"),
        "exceeded": Threshold(0.05, "of the time: the share from which a finding is worth reporting"),
        "packets": Threshold(1.0, "packets a second: single ones are bursts"),
        "flat": Threshold(
            0.03,
            "between the median and the fastest tenth: measured up to 1 % under a limit, 10 % and more at an unlimited disk",
        ),
        "device": Threshold(
            0.50, "of the blocked time: below it most of the waiting is before the disk, where limits apply"
        ),
        "round": Threshold(0.015, "of a sold rate: what file systems read besides the files"),
        "chance": Threshold(
            0.2,
            "times 1/√(reads a second): reads whose times vary by chance, by about a third, reach 0.5; a limit reaches 0.1",
        ),
    },
    triage_checks=(
        "disk.limit_mb_per_s",
        "disk.limit_reads_per_s",
        "disk.sequential_mb_per_s",
        "disk.small_reads_per_s",
    ),
)
