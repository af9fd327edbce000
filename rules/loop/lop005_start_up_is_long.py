"""Long start-up.

What it does: finds runs that take two minutes or more until training is under way, or a tenth of a run of ten minutes
and more.

Fires when: ≥ 2 min until training is under way, or a tenth of a run of ten minutes and more; a note. Or a run has ended of which ≥ 5 %
and ≥ 5 s went into batches that were fetched and discarded to resume in the middle of an epoch.

Why it is slow: nothing is trained while Python imports modules, folders are scanned for the data set's index, ranks
connect, workers start and the first step compiles. A job that is restarted after each preemption pays for it each time,
on every GPU it holds.

Evidence: the time from the start of the job until its first step was done, minus a usual step; its parts: before the
first fetch, the first fetch, batches that were fetched and discarded to resume in the middle of an epoch, and the first
step's own excess.

Fix: depends on the largest part. Before the first fetch: store the data set's index in a file instead of scanning
folders at each start, load weights once and from a local disk. First fetch: fewer workers, or a data set that is cheap
to send to them. Discarded batches: a sampler that resumes where the checkpoint was written, which loads nothing. First step: a cache for
compiled code that outlives the job (`TORCHINDUCTOR_CACHE_DIR` on a persistent disk), `cudnn.benchmark` off if shapes
change.

Estimate: none. Only a trial shows how much shorter it becomes, and it does not make a step faster.

False alarms: short runs, where any start-up is a large share: below ten minutes, and while a job still runs, only the
two minutes count. What resuming discards counts in any run that has ended: without it, nothing would be lost. An
evaluation or a restored checkpoint before the first step is part of the start-up, intended or not.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.step_measures import (
    RUN_DURATION_S,
    START_BEFORE_S,
    START_FETCH_S,
    START_FIRST_STEP_S,
    START_SKIPPED_S,
    START_TOTAL_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import training_loader, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity

# Value, its description, and the fix if it is the largest part.
_PARTS = (
    (
        START_BEFORE_S,
        "imports, data set index, model creation, process group initialization",
        Fix(
            "reduce the work before the first batch",
            "store the list of files and labels in an index file instead of scanning folders at each start; load weights from a local disk",
            None,
            "small change",
        ),
    ),
    (
        START_FETCH_S,
        "beyond a usual one: worker start-up, sampling order",
        Fix(
            "reduce the cost of the first fetch",
            "arrays instead of many Python objects transfer to workers faster; fewer workers start sooner",
            None,
            "small change",
        ),
    ),
    (
        START_SKIPPED_S,
        "batches fetched before the first training step and, as far as observed, discarded",
        Fix(
            "skip trained samples in the sampler, not in the loop",
            "accelerate.skip_first_batches(loader, n), a Subset of the remaining indices, or torchdata's StatefulDataLoader",
            None,
            "small change",
        ),
    ),
    (
        START_FIRST_STEP_S,
        "beyond a usual one: compilation, autotuning, first allocations",
        Fix(
            "cache the compiled code",
            "TORCHINDUCTOR_CACHE_DIR=/a/disk/that/stays for torch.compile; fixed shapes, or torch.backends.cudnn.benchmark = False",
            None,
            "one line",
        ),
    ),
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    total, run = a.value(START_TOTAL_S), a.value(RUN_DURATION_S)
    discarded = _discarded_s(a, t)
    if not discarded and not _is_long(a, t):
        return Clear(RULE.id)
    parts = sorted(_PARTS, key=lambda part: -(a.get(part[0]) or 0.0))
    if discarded:
        parts.sort(key=lambda part: part[0] is not START_SKIPPED_S)
    evidence = [
        Evidence.of(
            START_TOTAL_S,
            total,
            t["seconds"] if total >= t["seconds"] else t["share"] * run,
            f"{100 * total / max(run, total):.0f} % of {duration(run)}" + (" so far" if a.running else ""),
            form="explains",
        )
    ]
    evidence += [
        Evidence(name, a.get(name), "s", None, words, form="explains")
        for name, words, _ in parts
        if a.get(name) is not None
    ]
    return Finding(
        rule=RULE.id,
        title=f"Slow resume: {duration(discarded)} for batches that are fetched and discarded"
        if discarded
        else f"Long start-up: {duration(total)} until training begins",
        severity=(severity(discarded / run) if discarded else None) or "low",
        confidence=0.9,
        seconds_per_step=0.0,
        evidence=tuple(evidence),
        fixes=(_at_the_loader(a, parts[0][2]) if discarded else parts[0][2],),
    )


def _at_the_loader(a: Analysis, fix: Fix) -> Fix:
    loader = training_loader(a, {loader.rank: 0.0 for loader in a.loaders})
    return replace(fix, where=where_of(loader))


def _is_long(a: Analysis, t: Thresholds) -> bool:
    total, run = a.value(START_TOTAL_S), a.value(RUN_DURATION_S)
    over = not a.running and run >= t["run"]
    return total >= t["seconds"] or (over and total >= t["share"] * run)


def _discarded_s(a: Analysis, t: Thresholds) -> float:
    """Seconds in batches that were fetched and discarded, if they matter; 0.0 while the job runs and the share is not known."""
    seconds = a.get(START_SKIPPED_S) or 0.0
    matters = not a.running and seconds >= max(t["discarded"] * a.value(RUN_DURATION_S), t["discarded_s"])
    return seconds if matters else 0.0


RULE = rule(
    __name__,
    "Long start-up",
    check,
    needs=(START_TOTAL_S, RUN_DURATION_S),
    thresholds={
        "seconds": Threshold(120.0, "s: a shorter wait is acceptable; every restart pays for a longer one"),
        "share": Threshold(0.10, "twice the share from which severity is 'medium': it comes once, not in each step"),
        "discarded": Threshold(0.05, "of a run that has ended: the share from which severity is 'medium'"),
        "discarded_s": Threshold(5.0, "s: in a few seconds workers start"),
        "run": Threshold(600.0, "s: a shorter run is a trial, and most of a trial is its start"),
    },
    steady_steps=0,
)
