"""Data loading: more workers than cores.

What it does: finds loader workers that compete for the allowed cores although fewer would be enough. They delay
the training threads, and each other when the loop waits for their first batches.

Fires when: worker and training threads are > 1.5 × the allowed cores, workers wait for a core for ≥ 40 % of their runnable time, and
cores are idle in between.

Why it is slow: workers that make batches at the same time share the cores with each other and with the training thread.
While the training thread waits for a core, the step makes no progress. When an epoch begins, all workers start at once:
of twelve batches made side by side on two cores, none is ready until nearly all of them are. (Measured: in an epoch of
24 steps of 28 ms the loop waited 190 to 280 ms for the first batch, which one worker makes in 18 ms.)

Evidence: the share of the workers' runnable time in which they wait for a core; the training thread's wait for a core
as a share of computing a step; how much later epochs begin because the first batches compete for cores.

Fix: `num_workers=N` at file and line, where N workers keep up with the step and leave each training thread a core.

Estimate: at best the training threads no longer wait for a core, and epochs begin as early as with N workers; at worst
half of both is gained. No step becomes shorter than the job's CPU work divided by the allowed cores. If no core is
idle, that limit is today's step: fewer workers do not reduce the work, and DAT001 says what helps. (Measured on two
cores with two ranks and 32 ms of transforms a batch: 8 workers a rank took 57 and 61 ms a step, 2 workers 54 and 60, 1
worker 59.) This rule covers the remaining case: workers that compete in bursts, with idle cores in between.

False alarms: neighbours on the host (CPU003), a quota (CPU001; the allowed cores respect it), threads of the ranks
themselves (CPU005). The part of an epoch's start that goes beyond the workers' first batches is not counted here:
starting workers (DAT006), or a stream that fills its buffer (DAT014).
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_CPU_SHARE,
    FETCH_DELAY_SHARE,
    FETCH_WALL_S,
    LOADER_FORESEEN,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_FIRST_BATCH_S,
    EPOCH_START_S,
    STEP_EPOCH_START_S,
    STEP_RUN_DELAY_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import (
    PREFETCH,
    cores_of,
    delay_evidence,
    idle_cores,
    mean,
    model_of,
    spare_cores,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.epoch_starts import starts_workers
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    workers, delays = a.by_rank(LOADER_WORKERS), a.by_rank(STEP_RUN_DELAY_S)
    allowed, model = a.value(CPU_ALLOWED_CORES), model_of(a)
    present, advised = int(max(workers.values())), workers_for(a)[0]
    late_starts = _late_starts(a, advised)
    best, worst = (_without(a, delays, late_starts, share) for share in (1.0, 0.5))
    lost = model.step_s - 0.5 * (best + worst)
    level = severity(lost / model.step_s)
    neighbours = (cores_of(a).taken or 0.0) >= t["others"] * allowed
    # exhausted cores have no time to spare, whichever thread waits in the run queue
    exhausted = idle_cores(a) < spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
    threads, waiting = sum(a.of_host(workers).values()) + a.ranks_of_host, _waiting_share(a)
    crowded = threads > t["threads"] * allowed and waiting >= t["waiting"]
    if not crowded or exhausted or neighbours or advised >= present or level is None:
        return Clear(RULE.id)
    title = f"num_workers={present} → {advised}"
    note = f"of their runnable time, the {present} workers of a rank wait for one of {allowed:g} cores"
    return Finding(
        rule=RULE.id,
        title=f"Data loading: {present} workers per rank compete for {allowed:g} cores",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(FETCH_DELAY_SHARE, waiting, t["waiting"], note, form="continues"),
            delay_evidence(mean(delays), None),
            *_start_evidence(a, late_starts),
        ),
        fixes=(
            Fix.of(
                title,
                CallChange.of("DataLoader", num_workers=advised),
                where_of(training_loader(a, workers)),
                "one line",
            ),
        ),
        saving=model.saving(best, worst, "less waiting for a core in steps and at epoch starts"),
    )


def _waiting_share(a: Analysis) -> float:
    """Waiting for a core as a share of the time in which workers compute or wait for one."""
    delay, cpu = mean(a.by_rank(FETCH_DELAY_SHARE)), mean(a.by_rank(FETCH_CPU_SHARE))
    return delay / max(delay + cpu, 1e-9)


def _late_starts(a: Analysis, advised: int) -> dict[int, float]:
    """Seconds per step, by rank, by which epochs begin later than with the advised number of workers.

    A worker with several batches queued starts the second at once, so sending the first competes with making it.
    """
    starts, firsts, walls = (a.by_rank(name) for name in (EPOCH_START_S, EPOCH_FIRST_BATCH_S, FETCH_WALL_S))
    delays, shares = a.by_rank(FETCH_DELAY_SHARE), a.by_rank(FETCH_CPU_SHARE)
    crowd, found = a.ranks_of_host / a.value(CPU_ALLOWED_CORES), {}
    for rank, spread in a.by_rank(STEP_EPOCH_START_S).items():
        start, loader = starts.get(rank, 0.0), a.training_loader(rank)
        if start <= 0.0 or loader is None or rank not in walls:
            continue
        alone = walls[rank] * max(shares.get(rank, 0.0), 1.0 - delays.get(rank, 0.0))
        burst = (loader.prefetch_factor or PREFETCH) * alone * max(1.0, loader.num_workers * crowd)
        first_s = firsts.get(rank, 0.0) if starts_workers(a, loader) else start
        later = min(first_s, burst) - alone * max(1.0, advised * crowd)
        found[rank] = spread * max(0.0, min(1.0, later / start))
    return found


def _start_evidence(a: Analysis, late_starts: Mapping[int, float]) -> tuple[Evidence, ...]:
    later = mean(late_starts) if late_starts else 0.0
    if later <= 0.0:
        return ()
    step, start = a.value(STEP_TIME_S), mean(a.by_rank(EPOCH_START_S))
    note = f"{100 * later / step:.0f} % of the time, because the first batches of each epoch compete for cores"
    return (Evidence.of(STEP_EPOCH_START_S, later, note=f"{note}; each epoch start takes {duration(start)}"),)


def _without(a: Analysis, delays: Mapping[int, float], late_starts: Mapping[int, float], share: float) -> float:
    """Step time if the ranks regain this share of their wait for a core, as far as the cores allow."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, own in model.own.items():
        start = min(own["input_wait"], late_starts.get(rank, 0.0))
        rest = max(sum(own.values()) - start, 1e-9)
        keep = max(0.0, rest - share * delays.get(rank, 0.0)) / rest
        changes |= {(rank, phase): seconds * keep for phase, seconds in own.items()}
        changes[rank, "input_wait"] = (own["input_wait"] - start) * keep + (1.0 - share) * start
    return model.step_if(changes, floor_s=model.cpu_floor_s())


RULE = rule(
    __name__,
    "Data loading: more workers than cores",
    check,
    needs=(
        STEP_TIME_S,
        STEP_RUN_DELAY_S,
        LOADER_WORKERS,
        LOADER_FORESEEN,
        FETCH_WALL_S,
        FETCH_CPU_SHARE,
        FETCH_DELAY_SHARE,
        CPU_ALLOWED_CORES,
        CPU_JOB_CORES,
        CPU_HOST_BUSY_CORES,
    ),
    thresholds={
        "threads": Threshold(1.5, "times the allowed cores: with fewer threads, each mostly finds a core at once"),
        "waiting": Threshold(
            0.4,
            "of a worker's runnable time. On two cores, 2, 3 and 4 workers showed 0.11, 0.22 and 0.37, and one worker was "
            "as fast; 5, 6, 8 and 12 showed 0.46, 0.52, 0.66 and 0.83, and one worker was 1.07, 1.10, 1.12 and 1.26 times as fast",
        ),
        "spare_cores": Threshold(0.5, "half a core, as for DAT001: with less left the cores are the limit"),
        "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
        "others": Threshold(0.25, "a quarter of the cores: from there on, deal with the neighbours first (CPU003)"),
    },
)
