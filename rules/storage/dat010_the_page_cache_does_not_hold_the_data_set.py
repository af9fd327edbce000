"""Page cache smaller than the data set.

What it does: finds training that waits for storage in later epochs although an earlier epoch has read all the data:
files are evicted from the page cache before they are read again.

Fires when: ≥ 30 % of what later epochs request is read from storage again, and the job waits for it.

Why it is slow: data that was read once can stay in memory, and later epochs then read nothing from storage. A data set
only a little larger than the memory left for it is still mostly read again, because the cache evicts the least recently
used files first, and these are the next to be needed.

Evidence: bytes read again from storage, as a share of the bytes requested after the first epoch; the size of an epoch;
the memory that could hold it, on the host and within the limit of the job's control group.

Fix: a higher memory limit if the host has the memory; fewer bytes (images stored at training size, uint8 shards); more
memory; a copy on local NVMe.

Estimate: the time for which loaders are blocked shrinks with the amount that is read again. With a cached share x, an
epoch of D samples takes Dx/C + D(1-x)/S, where C and S are samples/s from memory and from storage. The range is from
half of the remainder cached to all of it. If the first epoch was measured separately, the estimate refers to later
epochs; in the worst case the run ends after as many later epochs as were observed, and the first one is counted in.

False alarms: the first epoch, which has to read everything. Reads through O_DIRECT or FUSE may never enter the cache.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import EPOCH_COLD_STEP_S, EPOCH_COLD_STEPS, STEP_INPUT_WAIT_S
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_EPOCH_MB,
    STORAGE_GROUP_ROOM_MB,
    STORAGE_HOST_ROOM_MB,
    STORAGE_LATER_EPOCHS,
    STORAGE_LATER_READ_SHARE,
    STORAGE_REREAD_SHARE,
)
from rn50_advisor.rules.analysis_reading import common, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.storage.storage_starvation import NEEDS, STARVED, only_memory_is_short, starved, step_with_reads

_MARGIN = 1.15  # processes grow, and the kernel drops pages before a limit is reached
_OF_LATER_EPOCHS = (STORAGE_REREAD_SHARE, STORAGE_LATER_EPOCHS, STORAGE_EPOCH_MB, STORAGE_LATER_READ_SHARE)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not starved(a, t):
        return Clear(RULE.id)
    missing = tuple(name for name in _OF_LATER_EPOCHS if not a.has(name))
    if missing:
        return NotMeasured(RULE.id, missing)
    again, later, epoch = (a.value(name) for name in _OF_LATER_EPOCHS[:3])
    model, first = (
        model_of(a),
        1.0 - a.value(STORAGE_LATER_READ_SHARE),
    )  # the first epoch always has to read its data
    lost = model.step_s - step_with_reads(a, first)
    level = severity(lost / model.step_s)
    if again < t["again"] or later < t["later"] or level is None:
        return Clear(RULE.id)
    loader = training_loader(a, a.by_rank(STEP_INPUT_WAIT_S))
    return Finding(
        rule=RULE.id,
        title=f"Page cache smaller than the data set: {100 * again:.0f} % of {_size(epoch)} read again in every epoch",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(
            input_evidence(a, common(input_waits(a)), t["input_wait"]),
            Evidence.of(
                STORAGE_REREAD_SHARE,
                again,
                t["again"],
                f"of the data is read from storage again in later epochs ({later:.1f} so far)",
                unit="share",
                form="continues",
            ),
            *_capacity(a, epoch),
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
        saving=model.saving(*_after(a, first), "half or all of the repeated reads served from memory"),
    )


def _after(a: Analysis, first: float) -> tuple[float, float]:
    """(best, worst) step time if all repeated reads come from memory, or half of them, or only for the length of this run."""
    best, half = (step_with_reads(a, keep) for keep in (first, 0.5 * (1.0 + first)))
    cold_steps, cold_s = a.get(EPOCH_COLD_STEPS), a.get(EPOCH_COLD_STEP_S)
    if not cold_steps or not cold_s:
        return best, half
    step, later = model_of(a).step_s, a.value(STORAGE_LATER_EPOCHS)
    whole_run = (cold_s + later * step) / (cold_s + later * best)
    return best, max(half, step / whole_run)


def _capacity(a: Analysis, epoch_mb: float) -> tuple[Evidence, ...]:
    found = [Evidence.of(STORAGE_EPOCH_MB, epoch_mb, note="in the first epoch", form="explains")]
    for measure, what in (
        (STORAGE_GROUP_ROOM_MB, "within the memory limit of the job's control group"),
        (STORAGE_HOST_ROOM_MB, "on this host"),
    ):
        free_mb = a.get(measure)
        if free_mb is not None:
            found.append(Evidence.of(measure, free_mb, note=f"could hold files {what}", form="explains"))
    return tuple(found)


def _more_memory(a: Analysis, epoch_mb: float) -> tuple[Fix, ...]:
    group = a.get(STORAGE_GROUP_ROOM_MB)
    if only_memory_is_short(a) and group is not None:
        more = _size(_MARGIN * epoch_mb - group)
        change = "docker run --memory, resources.limits.memory, sbatch --mem, memory.max"
        return (Fix(f"raise the job's memory limit by {more}: the host has it", change, None, "outside the code"),)
    return (Fix("more memory, or the data on local NVMe", "", None, "outside the code"),)


def _size(megabytes: float) -> str:
    return f"{megabytes / 1e3:.1f} GB" if megabytes >= 1e3 else f"{megabytes:.0f} MB"


RULE = rule(
    __name__,
    "Page cache smaller than the data set",
    check,
    needs=NEEDS,
    thresholds={
        **STARVED,
        "again": Threshold(
            0.30, "below it, most of a later epoch comes from memory already and more memory gains little"
        ),
        "later": Threshold(0.20, "a fifth of an epoch: less does not show what stays cached"),
    },
)
