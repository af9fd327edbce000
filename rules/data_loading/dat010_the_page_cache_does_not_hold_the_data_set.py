"""The page cache does not hold the data set.

What it does: finds training that waits for storage in later epochs although all of it was read before: files leave the page cache before
their next turn.

Why it is slow: what is read once can be kept in memory, and later epochs then read no storage at all. A data set a little larger than the
memory left for it is read from storage again, largely: each file is the one that was not needed for longest.

Evidence: what was read from storage again, as a share of what was asked for after the first epoch; the size of an epoch; the memory that
could hold it, of the host and within the limit of the job's control group.

Fix: a higher memory limit where the host has the memory; fewer bytes (images stored at training size, uint8 shards); more memory; a copy
on local NVMe.

Estimate: the time for which loaders are blocked shrinks with what is read again. With cache share x, an epoch of D samples takes
Dx/C + D(1-x)/S, C and S being samples/s from memory and from storage; between half of the rest held and all of it. Where the first epoch
was told apart, that is said of later epochs: at worst the run is over after as many of them as were seen, and the first one weighs in.

False alarms: the first epoch, which has to read everything. Reads through O_DIRECT or FUSE may never enter the cache.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import common, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import NEEDS, STARVED, only_memory_is_short, starved, step_with_reads

_ROOM_TO_SPARE = 1.15  # processes grow, and the kernel drops pages before a limit is reached
_LATER = ("storage.reread_share", "storage.later_epochs", "storage.epoch_mb", "storage.later_read_share")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not starved(a, t):
        return Clear(RULE.id)
    missing = tuple(name for name in _LATER if not a.has(name))
    if missing:
        return NotMeasured(RULE.id, missing)
    again, later, epoch = (a.value(name) for name in _LATER[:3])
    model, first = (
        model_of(a),
        1.0 - a.value("storage.later_read_share"),
    )  # what the first epoch reads, it will always read
    lost = model.step_s - step_with_reads(a, first)
    level = severity(lost / model.step_s)
    if again < t["again"] or later < t["later"] or level is None:
        return Clear(RULE.id)
    loader = training_loader(a, a.by_rank("step.input_wait_s"))
    return Finding(
        rule=RULE.id,
        title=f"The page cache does not hold the data set: {100 * again:.0f} % of {_size(epoch)} is read again in each epoch",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(
            input_evidence(a, common(input_waits(a)), t["input_wait"]),
            Evidence(
                "storage.reread_share",
                again,
                "share",
                t["again"],
                f"of {later:.1f} later epochs is read from storage again",
            ),
            *_room(a, epoch),
        ),
        fixes=(
            *_more_memory(a, epoch),
            Fix(
                "fewer bytes: images stored at training size, or shards of uint8",
                "",
                where_of(loader),
                "larger change",
            ),
        ),
        saving=model.saving(*_after(a, first), "half of what is read again held in memory, or all of it"),
        explains=("DAT002", "DSK001", "DSK002") if only_memory_is_short(a) else (),
    )


def _after(a: Analysis, first: float) -> tuple[float, float]:
    """(best, worst) step time with all that is read again held in memory, or half of it, or for no longer than this run."""
    best, half = (step_with_reads(a, keep) for keep in (first, 0.5 * (1.0 + first)))
    cold_steps, cold_s = a.get("epoch.cold_steps"), a.get("epoch.cold_step_s")
    if not cold_steps or not cold_s:
        return best, half
    step, later = model_of(a).step_s, a.value("storage.later_epochs")
    whole_run = (cold_s + later * step) / (cold_s + later * best)
    return best, max(half, step / whole_run)


def _room(a: Analysis, epoch_mb: float) -> tuple[Evidence, ...]:
    found = [Evidence("storage.epoch_mb", epoch_mb, "MB", None, "asked for in the first epoch")]
    for name, what in (("group", "within the memory limit of the job's control group"), ("host", "on this host")):
        room = a.get(f"storage.{name}_room_mb")
        if room is not None:
            found.append(Evidence(f"storage.{name}_room_mb", room, "MB", None, f"could hold files {what}"))
    return tuple(found)


def _more_memory(a: Analysis, epoch_mb: float) -> tuple[Fix, ...]:
    group = a.get("storage.group_room_mb")
    if only_memory_is_short(a) and group is not None:
        more = _size(_ROOM_TO_SPARE * epoch_mb - group)
        change = "docker run --memory, resources.limits.memory, sbatch --mem, memory.max"
        return (Fix(f"raise the job's memory limit by {more}: the host has it", change, None, "outside the code"),)
    return (Fix("more memory, or the data on local NVMe", "", None, "outside the code"),)


def _size(megabytes: float) -> str:
    return f"{megabytes / 1e3:.1f} GB" if megabytes >= 1e3 else f"{megabytes:.0f} MB"


RULE = rule(
    __name__,
    "the page cache does not hold the data set",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "again": Threshold(0.30, "below it, most of a later epoch comes from memory and more of it brings little"),
        "later": Threshold(0.20, "a fifth of an epoch: of less it cannot be told what stays"),
    },
)
