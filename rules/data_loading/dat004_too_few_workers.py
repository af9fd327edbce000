"""Data loading: too few workers.

What it does: finds training that waits for input while every loader worker is busy and there are cores for more
workers.

Fires when: input wait is ≥ 5 %, the workers are busy, and half an allowed core is idle (15 % of them on larger hosts; less if workers
mostly wait, or if the forecast gains a tenth even at worst).

Why it is slow: the workers produce fewer samples per second than the step consumes, although there are cores for more
workers.

Evidence: the input wait as a share of the step; how busy the workers are; the cores that the job keeps busy, out of
those it is allowed.

Fix: `num_workers=N` at file and line. N is the worker forecast's point of diminishing returns: the fewest workers that come close to the
best speed, and at most as many as the idle cores can carry.

Estimate: the forecast at N. It simulates a loader with N workers batch by batch, with this run's batch times, the
transfer to the loop, and the cores shared with training.

Cores count as available if some are idle. They also count if the forecast shortens the step even in the worst case, in
which neighbours keep their cores and the whole job queues for the rest. Otherwise the CPUs are exhausted (DAT001).

Workers that sleep while they make a batch (waiting for an object store, for example) need less of a core than workers
that compute, and may outnumber the cores.

Workers that wait for a server or a database gain from more workers only as long as it can answer more requests at once, which
cannot be measured from here. More workers are then advised on that condition, and at worst they gain nothing.

False alarms: a slow mount blocks any number of workers (DAT002). So does a lock that all workers share, for which this
rule stays silent (DAT013). Nothing is reported if more workers would shorten the step by less than 2 % even at best.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_ASKING_SHARE,
    LOADER_BUSY_SHARE,
    LOADER_FORESEEN,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import (
    common,
    forecast_of,
    free_space_fix,
    idle_cores,
    limit_words,
    limits_beside_cores,
    lost_to_input,
    mean,
    model_of,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.worker_supply import (
    GAIN_RATIO_MIN,
    WORKER_THRESHOLDS,
    workers_missing,
    workers_on_idle_cores,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SERVER_WAIT_SHARE_MIN = 0.5  # of the workers' stack samples: from here on they mostly wait for a server's answers


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, now = input_waits(a), a.by_rank(LOADER_WORKERS)
    step, wait, busy = a.value(STEP_TIME_S), common(waits), mean(a.by_rank(LOADER_BUSY_SHARE))
    idle = idle_cores(a)
    level = severity(wait / step)
    if wait < t["input_wait"] * step or level is None or not workers_missing(a, t):
        return Clear(RULE.id)
    rank = max(waits, key=lambda r: waits[r])
    present = int(now.get(rank, mean(now)))
    workers = max(present + 1, min(workers_for(a)[0], workers_on_idle_cores(a, present)))
    workers = max(present, min([workers, *(count for _, count in limits_beside_cores(a))]))
    loader, model = training_loader(a, waits), model_of(a)
    then = max(workers, present + 1)  # once room is made, if there is none
    best, worst = forecast_of(a).step_s(then)
    saving = model.saving(best, worst, f"{then} workers, simulated with the batches of this run")
    served = (a.get(LOADER_ASKING_SHARE) or 0.0) >= _SERVER_WAIT_SHARE_MIN
    if served:
        saving = model.saving(best, model.step_s, f"{then} workers, if the server keeps its response time")
    elif saving.speedup[1] < GAIN_RATIO_MIN:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Data loading: too few workers ({present}), {idle:.1f} cores idle",
        severity=level,
        confidence=confidence(a, cap=0.6 if served else 0.95),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence.of(LOADER_BUSY_SHARE, busy, t["busy"], f"{counted(present, 'worker')} per rank", form="explains"),
            Evidence.of(
                CPU_JOB_CORES,
                a.value(CPU_JOB_CORES),
                note=f"of {a.value(CPU_ALLOWED_CORES):g} allowed",
                form="continues",
            ),
            *(_asking(a) if served else ()),
        ),
        fixes=(_fix(a, present, workers, loader, served=served), *(_server_fix(a) if served else ())),
        saving=saving,
    )


def _asking(a: Analysis) -> tuple[Evidence, ...]:
    share, line = a.value(LOADER_ASKING_SHARE), a.asking
    where = f", {line.seen} of {line.looks} stacks at {line.words}" if line else ""
    note = f"of the workers' stack samples wait for a server{where}"
    return (Evidence.of(LOADER_ASKING_SHARE, share, note=note, form="continues"),)


def _server_fix(a: Analysis) -> tuple[Fix, ...]:
    """A second fix, because more workers may only lengthen the queue at a server."""
    where = Where(a.asking.file, a.asking.line) if a.asking else None
    return (
        Fix(
            "or request all samples of a batch at once, or use a local copy",
            "__getitems__(indices) of the data set instead of __getitem__; a saturated server does not answer more workers faster",
            where,
            "small change",
        ),
    )


def _fix(a: Analysis, present: int, workers: int, loader: LoaderFacts | None, *, served: bool) -> Fix:
    """More workers, or room for them if cores are idle and another resource is full."""
    if workers <= present:
        return free_space_fix(a, present + 1, where_of(loader))
    limits = limit_words(a)
    change = CallChange.of("DataLoader", num_workers=workers, persistent_workers=True)
    persistent = "" if loader is not None and loader.persistent_workers else ", persistent_workers=True"
    condition = ", if the server can handle more concurrent requests" if served else ""
    title = f"num_workers={present} → {workers}{persistent}{condition}"
    return Fix.of(title, change, where_of(loader), "one line", more=f"; {limits}" if limits else "")


RULE = rule(
    __name__,
    "Data loading: too few workers",
    check,
    needs=(
        STEP_TIME_S,
        STEP_INPUT_WAIT_S,
        FETCH_WALL_S,
        LOADER_WORKERS,
        LOADER_BUSY_SHARE,
        LOADER_FORESEEN,
        CPU_ALLOWED_CORES,
        CPU_JOB_CORES,
        CPU_HOST_BUSY_CORES,
    ),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        **WORKER_THRESHOLDS,
    },
)
