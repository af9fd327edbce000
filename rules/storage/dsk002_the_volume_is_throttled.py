"""The volume is throttled.

What it does: finds storage that is held to a limit while the job waits for its data: by its control group, by the provider's own counters,
or by a rate so even that only a limit explains it.

Why it is slow: a limit gives the same number of bytes or reads in each second, whoever asks and however many. The disk behind it could do
more.

Evidence: the limit of the job's control group and how near to it the job reads; the time in which the provider held back the volume or the
machine (EBS, ENA); or second after second the same rate, at a number that volumes are sold with, evener than chance leaves so many reads,
or while the disk itself has little to do.

Fix: another class or size of volume (gp3 throughput and IOPS can be bought apart), a larger machine where its limit is the one; lift the
control group's limit; local NVMe; where reads are counted, larger ones.

Estimate: as DAT002's: reads twice as fast or better.

False alarms: a job that needs no more reads as evenly, therefore only while its loaders are blocked on reads. Readers that take turns at a
disk do so too, though not as evenly as a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
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
_LESS_SURE = 0.75  # of a rate alone


@dataclass(frozen=True, slots=True)
class _Limit:
    what: str  # for the title
    evidence: tuple[Evidence, ...]
    in_group: bool = False
    counted: bool = False  # reads, not bytes
    surmised: bool = False


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wait, step = common(input_waits(a)), a.value("step.time_s")
    level = severity(wait / step)
    if not starved(a, t) or level is None:
        return Clear(RULE.id)
    if not a.has("storage.read_mb_s") and not a.has("storage.link_exceeded_s"):
        return NotMeasured(RULE.id, ("storage.read_mb_s",))
    limit = _of_group(a, t) or _of_provider(a, t) or _flat(a, t)
    if limit is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"The volume is throttled: {limit.what}",
        severity=level,
        confidence=confidence(a, cap=_LESS_SURE if limit.surmised else 0.95),
        seconds_per_step=lost_to_input(a),
        evidence=(input_evidence(a, wait, t["input_wait"]), *limit.evidence),
        fixes=_fixes(a, limit),
        saving=saving_of_faster_storage(a),
    )


def _of_group(a: Analysis, t: Thresholds) -> _Limit | None:
    found = group_limit(a, t["near"])
    if found is None:
        return None
    rate, most, name = found
    unit = "MB/s" if name == "mb_s" else "reads/s"
    note = f"of {most:.4g} {unit} that a control group of the job lets it read from {place_of(a)}"
    evidence = Evidence(f"storage.usual_{name}", rate, unit, t["near"] * most, note)
    return _Limit(f"its control group allows {most:.4g} {unit}", (evidence,), True, name == "reads_s")


def _of_provider(a: Analysis, t: Thresholds) -> _Limit | None:
    for name, what in (("volume", "this volume"), ("instance", "the disks of this machine")):
        share = a.get(f"storage.{name}_exceeded_share")
        if share is not None and share >= t["exceeded"]:
            note = f"of the time the provider held back {what}"
            evidence = Evidence(f"storage.{name}_exceeded_share", share, "share", t["exceeded"], note)
            return _Limit(f"the provider holds back {what}", (evidence,))
    packets = a.get("storage.link_exceeded_s")
    if packets is not None and packets >= t["packets"] and over_network(a):
        note = "beyond what the provider lets this machine receive: queued or dropped"
        evidence = Evidence("storage.link_exceeded_s", packets, "packets/s", t["packets"], note)
        return _Limit("the provider limits what this machine receives", (evidence,))
    return None


def _flat(a: Analysis, t: Thresholds) -> _Limit | None:
    """Bytes before reads: files of one size make both even."""
    for rate, name, unit, sold in zip(
        (a.get("storage.usual_mb_s"), a.get("storage.usual_reads_s")),
        ("mb", "reads"),
        ("MB/s", "reads/s"),
        (tuple(n * f for n in _SOLD_MB_S for f in (1.0, _MIB)), _SOLD_READS_S),
        strict=True,
    ):
        spread = a.get(f"storage.{name}_spread")
        if spread is None or rate is None or spread > t["flat"]:
            continue
        why = _why_a_limit(a, t, rate, sold, spread)
        if why:
            note = f"from the median to the fast tenth of {a.get('storage.seconds') or 0:.0f} seconds, {why}"
            evidence = (
                Evidence(f"storage.{name}_spread", spread, "share", t["flat"], note),
                Evidence(f"storage.usual_{name}_s", rate, unit, None, f"from {place_of(a)} in each second"),
            )
            return _Limit(f"{rate:.3g} {unit} in each second", evidence, False, name == "reads", True)
    return None


def _why_a_limit(a: Analysis, t: Thresholds, rate: float, sold: tuple[float, ...], spread: float) -> str:
    """What tells an even rate from readers that take turns at an even disk; empty where nothing does."""
    device, reads = a.get("storage.device_share"), a.get("storage.usual_reads_s")
    if device is not None and device <= t["device"]:
        return f"while the disk itself takes {100 * device:.0f} % of the time that loaders are blocked"
    if any(abs(rate - number) <= t["round"] * number for number in sold):
        return "at a number that volumes are sold with"
    if reads and spread * math.sqrt(reads) <= t["chance"]:
        return f"evener than {reads:.0f} reads a second are by themselves"
    return ""


def _fixes(a: Analysis, limit: _Limit) -> tuple[Fix, ...]:
    where = where_of(training_loader(a, a.by_rank("step.input_wait_s")))
    larger = Fix("read larger pieces: tar shards or one file per many samples", "", where, "larger change")
    if limit.in_group:
        change = "docker run --device-read-bps / --device-read-iops, io.max, blkio.throttle"
        first = Fix("lift the control group's limit on reading", change, None, "outside the code")
    else:
        first = Fix("a faster class of volume, or local NVMe", "gp3: buy throughput and IOPS", None, "outside the code")
    return (first, larger) if limit.counted else (first,)


RULE = rule(
    __name__,
    "the volume is throttled",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "near": Threshold(NEAR, "of the limit: the last tenth is lost between its slices"),
        "exceeded": Threshold(0.05, "of the time: as much as a finding must cost"),
        "packets": Threshold(1.0, "a second: single packets are bursts"),
        "flat": Threshold(0.03, "measured: up to 1 % under a limit, 10 % and more at a disk that nobody holds back"),
        "device": Threshold(0.50, "the larger part of the waiting is before the disk, where limits are"),
        "round": Threshold(0.015, "of a number: what file systems read beside the files"),
        "chance": Threshold(
            0.2,
            "times 1/√(reads a second): reads that take their time by chance, give or take a third, come to 0.5; a limit to 0.1",
        ),
    },
)
