"""Too few workers for the cores at hand.

What it does: finds training that waits for input while every loader worker is busy and there are cores for more of them.

Why it is slow: the workers make fewer samples per second than the step consumes, although there are cores for more of them.

Evidence: waiting for input as a share of the step; how busy the workers are; cores the job keeps busy of those it is allowed.

Fix: `num_workers=N` at file and line. N is the knee of the forecast over worker counts: the fewest workers that come near the best, at
most as many as the idle cores carry.

Estimate: the same forecast at N. A loader with N workers is played through batch by batch, with the batch times of this run, handing over,
and the cores shared with training.

There are cores where some idle; or where the forecast shortens the step even at worst, with neighbours keeping the cores that they have and
all of the job waiting in line for the rest. Else the CPUs are exhausted (DAT001).

Workers that sleep through their batches (an object store answers) need less of a core than those that compute, and may outnumber the cores.

False alarms: one slow mount blocks any number of workers (DAT002); so does a lock of all of them, for which nothing is said here (DAT013).
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix, Where
from advisor.core.format import counted
from rules.reading import (
    common,
    forecast_of,
    idle_cores,
    input_evidence,
    limit_words,
    lost_to_input,
    mean,
    model_of,
    room_beside_cores,
    room_fix,
    training_loader,
    where_of,
    workers_for,
)
from rules.rule import Threshold, Thresholds, confidence, rule, severity
from rules.staffing import STAFFED, room_on_idle_cores, workers_missing


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, now = a.by_rank("step.input_wait_s"), a.by_rank("loader.workers")
    step, wait, busy = a.value("step.time_s"), common(waits), mean(a.by_rank("loader.busy_share"))
    idle = idle_cores(a)
    level = severity(wait / step)
    if wait < t["input_wait"] * step or level is None or not workers_missing(a, t):
        return Clear(RULE.id)
    rank = max(waits, key=lambda r: waits[r])
    present = int(now.get(rank, mean(now)))
    workers = max(present + 1, min(workers_for(a)[0], room_on_idle_cores(a, present)))
    workers = max(present, min([workers, *(count for _, count in room_beside_cores(a))]))
    loader, model = training_loader(a, waits), model_of(a)
    then = max(workers, present + 1)  # with room made for it, where there is none
    best, worst = forecast_of(a).step_s(then)
    return Finding(
        rule=RULE.id,
        title=f"{counted(present, 'loader worker')} cannot keep up, and {idle:.1f} cores idle",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence("loader.busy_share", busy, "", t["busy"], f"{counted(present, 'worker')} a rank"),
            Evidence(
                "cpu.job_cores", a.value("cpu.job_cores"), "cores", None, f"of {a.value('cpu.allowed_cores'):g} allowed"
            ),
        ),
        fixes=(_fix(a, present, workers, where_of(loader)),),
        saving=model.saving(best, worst, f"{then} workers, played through with the batches of this run"),
    )


def _fix(a: Analysis, present: int, workers: int, where: Where | None) -> Fix:
    """More workers; or room for them, where cores idle and something else is full."""
    if workers <= present:
        return room_fix(a, present + 1, where)
    limits = limit_words(a)
    change = f"DataLoader(..., num_workers={workers}, persistent_workers=True)"
    return Fix(f"num_workers={present} → {workers}", change + (f"; {limits}" if limits else ""), where, "one line")


RULE = rule(
    __name__,
    "too few workers for the cores at hand",
    check,
    needs=(
        "step.time_s",
        "step.input_wait_s",
        "fetch.wall_s",
        "loader.workers",
        "loader.busy_share",
        "loader.foreseen",
        "cpu.allowed_cores",
        "cpu.job_cores",
        "cpu.host_busy_cores",
    ),
    explains=("COM002",),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        **STAFFED,
    },
)
