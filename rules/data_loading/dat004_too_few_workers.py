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

Workers that wait for the answers of a server or a database get more of them only as long as it can answer more at once, which cannot be
seen from here. So more workers are advised on that condition, and at worst they gain nothing.

False alarms: one slow mount blocks any number of workers (DAT002); so does a lock of all of them, for which nothing is said here (DAT013).
Nor is anything said where more of them would shorten the step by less than 2 % even at best.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import (
    common,
    forecast_of,
    idle_cores,
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
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.worker_supply import HARDLY, STAFFED, room_on_idle_cores, workers_missing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_ASKING = 0.5  # of the looks at workers: from here on it is mostly a server's answers that they wait for


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, now = input_waits(a), a.by_rank("loader.workers")
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
    saving = model.saving(best, worst, f"{then} workers, played through with the batches of this run")
    served = (a.get("loader.asking_share") or 0.0) >= _ASKING
    if served:
        saving = model.saving(best, model.step_s, f"{then} workers, if the server answers them as fast as it does now")
    elif saving.speedup[1] < HARDLY:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"{counted(present, 'loader worker')} cannot keep up, and {idle:.1f} cores idle",
        severity=level,
        confidence=confidence(a, cap=0.6 if served else 0.95),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence("loader.busy_share", busy, "", t["busy"], f"{counted(present, 'worker')} a rank"),
            Evidence(
                "cpu.job_cores", a.value("cpu.job_cores"), "cores", None, f"of {a.value('cpu.allowed_cores'):g} allowed"
            ),
            *(_asking(a) if served else ()),
        ),
        fixes=(_fix(a, present, workers, loader, served=served), *(_beside(a) if served else ())),
        saving=saving,
    )


def _asking(a: Analysis) -> tuple[Evidence, ...]:
    share, line = a.value("loader.asking_share"), a.asking
    where = f", {line.seen} of {line.looks} looks at {line.words}" if line else ""
    note = f"of the looks at workers' stacks found one waiting for a server's answer{where}"
    return (Evidence("loader.asking_share", share, "", None, note),)


def _beside(a: Analysis) -> tuple[Fix, ...]:
    """Where more workers may only make the line before a server longer."""
    where = Where(a.asking.file, a.asking.line) if a.asking else None
    return (
        Fix(
            "or ask for all samples of a batch at once, or keep a copy nearby",
            "__getitems__(indices) of the data set instead of __getitem__; a server that is at its limit answers no faster to more workers",
            where,
            "small change",
        ),
    )


def _fix(a: Analysis, present: int, workers: int, loader: LoaderFacts | None, *, served: bool) -> Fix:
    """More workers; or room for them, where cores idle and something else is full."""
    if workers <= present:
        return room_fix(a, present + 1, where_of(loader))
    limits = limit_words(a)
    change = f"DataLoader(..., num_workers={workers}, persistent_workers=True)"
    living = "" if loader is not None and loader.persistent_workers else ", persistent_workers=True"
    condition = ", if the server can answer more at once" if served else ""
    title = f"num_workers={present} → {workers}{living}{condition}"
    return Fix(title, change + (f"; {limits}" if limits else ""), where_of(loader), "one line")


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
