"""Data loading: no workers.

What it does: finds a training DataLoader with `num_workers=0` whose batches take a noticeable share of the step.

Fires when: `num_workers=0`, and input wait is ≥ 5 % of the step.

Why it is slow: one thread alternates between loading a batch (reading, decoding, transforming) and training on it. The
accelerator is idle for the whole time it takes to make each batch.

Evidence: the input wait as a share of the step; `num_workers=0` at file and line; the time to make one batch in the
training process.

Fix: `num_workers=N` with `persistent_workers=True`, and `pin_memory=True` when training on a GPU. N is the point of
diminishing returns of the worker forecast: the fewest workers that come close to the best speed this rank's cores can
sustain. If workers would gain less than 2 % even at best, or might as well cost time, make the samples cheaper instead.

Estimate: the forecast at N. It simulates a loader with N workers batch by batch, with this run's batch times, the
transfer to the loop, and the cores shared with training; it is never better than a step without this wait. Workers cannot help
on a machine without idle cores: there the estimate is up to the whole wait for samples, as if they cost nothing. At
best the step also computes faster, because no batch passes through its core's caches any more.

False alarms: tiny in-memory data, where workers cost more than they save (DAT007): nothing is reported if a batch is
made faster than a worker could hand one over, or below 5 % of the step, or if garbage collection may explain the time
(CPU006).
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import RUNS_DIFFER, Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_FORESEEN, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_GC_S, STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import (
    common,
    forecast_of,
    free_space_fix,
    limit_words,
    limits_beside_cores,
    lost_to_input,
    mean,
    model_of,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.data_loading.preprocessing import dominant_line, read_for_nothing
from rn50_advisor.rules.data_loading.worker_supply import GAIN_RATIO_MIN
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SHARE = 0.5  # of the stacks of a process that makes samples


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, walls = a.by_rank(STEP_INPUT_WAIT_S), a.by_rank(FETCH_WALL_S)
    step, wait = a.value(STEP_TIME_S), common(waits)
    level, collecting = severity(wait / step), a.by_rank(STEP_GC_S)
    loading = common({rank: seconds - collecting.get(rank, 0.0) for rank, seconds in waits.items()})
    if max(a.by_rank(LOADER_WORKERS).values()) > 0 or loading < t["input_wait"] * step or level is None:
        return Clear(RULE.id)
    if max(walls.values()) < t["hand_over"]:
        return Clear(RULE.id)
    workers, wanted = workers_for(a)
    loader, model = training_loader(a, waits), model_of(a)
    best, worst = forecast_of(a).step_s(workers)
    # the fix does not shorten other parts of the step
    best = max(best, model.at_best(model.step_s - lost_to_input(a)))
    title = f"num_workers=0 → {workers}, persistent_workers=True"
    pinned = {"pin_memory": True} if loader is not None and a.on_gpu else {}
    change, more = CallChange.of("DataLoader", num_workers=workers, persistent_workers=True, **pinned), ""
    if wanted > workers:
        limits = limit_words(a)
        more = f"; {wanted} workers would be needed, this machine has room for {workers}"
        more += f" ({limits})" if limits else ""
    if a.get(CPU_ALLOWED_CORES) is None:
        more += "; how many cores are free for them was not measured"
    fix = Fix.of(title, change, where_of(loader), "one line", more=more)
    if any(count < 1 for _, count in limits_beside_cores(a)):
        fix = free_space_fix(a, workers, where_of(loader))
    saving = model.saving(best, worst, f"{counted(workers, 'worker')} running beside training on the available cores")
    # if workers may slow the step down, the expected gain must exceed the difference between two runs
    slower = worst > model.step_s and model.step_s < (1.0 + RUNS_DIFFER) * math.sqrt(best * worst)
    alone = not slower and saving.speedup[1] >= GAIN_RATIO_MIN
    if not alone:
        fix, half = _cheaper_samples(a, loader), lost_to_input(a) / 2
        level = severity(half / step)  # how much cheaper they can become is unknown
        saving = model.saving(model.step_s - 2 * half, model.step_s, "at best no time for loading")
    if level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Data loading: batches made in the training process",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence.of(LOADER_WORKERS, 0.0, 1.0, _place_of(loader)),
            Evidence.of(FETCH_WALL_S, mean(walls), note="to make one batch in the training process", form="explains"),
        ),
        fixes=(fix,),
        saving=saving,
        circumstances=frozenset(() if alone else ("better than workers",)),
    )


def _cheaper_samples(a: Analysis, loader: LoaderFacts | None) -> Fix:
    """At the line that takes most of the time of making samples, if there is one."""
    line = dominant_line(a, _LINE_SHARE)
    what = f"most of their time goes to {line.words}" if line else "transforms on whole batches"
    return Fix(
        "make samples cheaper: workers would take cores from compute",
        f"{read_for_nothing(a)}{what}; what is the same each time can be computed, decoded or cached once",
        Where(line.file, line.line) if line else where_of(loader),
        "small change",
    )


def _place_of(loader: LoaderFacts | None) -> str:
    """Where the loader is made; from a profiler's trace, at best the line that takes its batches is known."""
    if loader is not None and loader.file:
        return f"at {loader.file}:{loader.line}"
    known = loader is not None and loader.fetch_file
    return (
        f"num_workers=0, batches taken at {loader.fetch_file}:{loader.fetch_line}"
        if loader and known
        else "num_workers=0"
    )


RULE = rule(
    __name__,
    "Data loading: no workers",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, LOADER_WORKERS, FETCH_WALL_S, LOADER_FORESEEN),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "hand_over": Threshold(
            0.002, "s to make a batch: handing one over took 1.6 to 2.2 ms on two cores, whatever its content"
        ),
    },
    traced=True,
)
