"""More workers than cores.

What it does: finds loader workers that take turns on the allowed cores where fewer would do: they hold up the training threads, and each
other where the loop waits for their first batches.

Why it is slow: workers that make batches side by side share the cores with each other and with the training thread. While it stands in the
queue for a core, the step stands too. When an epoch begins all of them start at once, and of twelve batches that are made side by side on
two cores none is ready before all of them nearly are. (Measured: of an epoch of 24 steps of 28 ms the loop waited 190 to 280 ms for the
first batch, that one worker makes in 18.)

Evidence: of the time in which a worker could run, what it waits for a core; waiting for a core as a share of computing a step; what epochs
begin later by for the crowd that their first batches are made in.

Fix: `num_workers=N` at file and line, with the N that keeps up with the step and leaves each training thread a core.

Estimate: the training threads' waiting for a core given back, and of the begin of epochs all that a crowd of N would not need; at worst
half of both. But never a step shorter than the job's CPU work over the allowed cores. Where no core idles that is today's step: fewer
workers do not make less work, and DAT001 says what helps. (Measured on two cores with two ranks and 32 ms of transforms a batch: 8 workers
a rank 57 and 61 ms a step, 2 workers 54 and 60, 1 worker 59.) What is left are workers that crowd in bursts, with idle cores in between.

False alarms: neighbours on the host (CPU003), a quota (CPU001; the allowed cores respect it), threads of the ranks themselves (CPU005).
What an epoch's begin takes beyond the batches that all workers make then is not theirs: workers that start (DAT006), a stream that fills
its buffer (DAT014).
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
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
    workers, delays = a.by_rank("loader.workers"), a.by_rank("step.run_delay_s")
    allowed, model = a.value("cpu.allowed_cores"), model_of(a)
    present, advised = int(max(workers.values())), workers_for(a)[0]
    begins = _crowded_begins(a, advised)
    best, worst = (_without(a, delays, begins, share) for share in (1.0, 0.5))
    lost = model.step_s - 0.5 * (best + worst)
    level = severity(lost / model.step_s)
    neighbours = (cores_of(a).taken or 0.0) >= t["others"] * allowed
    # exhausted cores have no time to give back, whoever stands in the queue
    exhausted = idle_cores(a) < spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
    threads, waiting = sum(a.of_host(workers).values()) + a.ranks_of_host, _waiting_share(a)
    crowded = threads > t["threads"] * allowed and waiting >= t["waiting"]
    if not crowded or exhausted or neighbours or advised >= present or level is None:
        return Clear(RULE.id)
    title = f"num_workers={present} → {advised}"
    note = f"of the time in which one of {present} workers a rank could run it waits for one of {allowed:g} cores"
    return Finding(
        rule=RULE.id,
        title=f"{present} workers a rank crowd each other and the training on {allowed:g} cores",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        evidence=(
            Evidence("fetch.delay_share", waiting, "", t["waiting"], note),
            delay_evidence(mean(delays), None),
            *_begin_evidence(a, begins),
        ),
        fixes=(
            Fix(title, f"DataLoader(..., num_workers={advised})", where_of(training_loader(a, workers)), "one line"),
        ),
        saving=model.saving(
            best, worst, "waiting for a core given back, in steps and when epochs begin, within the cores there are"
        ),
    )


def _waiting_share(a: Analysis) -> float:
    """Of the time in which workers compute or stand in line for a core."""
    delay, cpu = mean(a.by_rank("fetch.delay_share")), mean(a.by_rank("fetch.cpu_share"))
    return delay / max(delay + cpu, 1e-9)


def _crowded_begins(a: Analysis, advised: int) -> dict[int, float]:
    """By rank, seconds of a step: what epochs begin later than they would with so many workers.

    A worker that is asked for several batches begins the second at once: what sends off the first takes turns with that.
    """
    starts, firsts, walls = (a.by_rank(name) for name in ("epoch.start_s", "epoch.first_batch_s", "fetch.wall_s"))
    delays, shares = a.by_rank("fetch.delay_share"), a.by_rank("fetch.cpu_share")
    crowd, found = a.ranks_of_host / a.value("cpu.allowed_cores"), {}
    for rank, spread in a.by_rank("step.epoch_start_s").items():
        start, loader = starts.get(rank, 0.0), a.training_loader(rank)
        if start <= 0.0 or loader is None or rank not in walls:
            continue
        alone = walls[rank] * max(shares.get(rank, 0.0), 1.0 - delays.get(rank, 0.0))
        burst = (loader.prefetch_factor or PREFETCH) * alone * max(1.0, loader.num_workers * crowd)
        begins = firsts.get(rank, 0.0) if starts_workers(a, loader) else start
        later = min(begins, burst) - alone * max(1.0, advised * crowd)
        found[rank] = spread * max(0.0, min(1.0, later / start))
    return found


def _begin_evidence(a: Analysis, begins: Mapping[int, float]) -> tuple[Evidence, ...]:
    later = mean(begins) if begins else 0.0
    if later <= 0.0:
        return ()
    step, start = a.value("step.time_s"), mean(a.by_rank("epoch.start_s"))
    note = f"{100 * later / step:.0f} % of the time, for the crowd in which the first batches of epochs are made"
    return (Evidence("step.epoch_start_s", later, "s", None, f"{note}; each begins with {1000 * start:.0f} ms"),)


def _without(a: Analysis, delays: Mapping[int, float], begins: Mapping[int, float], share: float) -> float:
    """Step time when the ranks get this share of their waiting for a core back, as far as the cores allow."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, own in model.own.items():
        begin = min(own["input_wait"], begins.get(rank, 0.0))
        rest = max(sum(own.values()) - begin, 1e-9)
        keep = max(0.0, rest - share * delays.get(rank, 0.0)) / rest
        changes |= {(rank, phase): seconds * keep for phase, seconds in own.items()}
        changes[rank, "input_wait"] = (own["input_wait"] - begin) * keep + (1.0 - share) * begin
    return model.step_if(changes, floor_s=model.cpu_floor_s())


RULE = rule(
    __name__,
    "more workers than cores",
    check,
    needs=(
        "step.time_s",
        "step.run_delay_s",
        "loader.workers",
        "loader.foreseen",
        "fetch.wall_s",
        "fetch.cpu_share",
        "fetch.delay_share",
        "cpu.allowed_cores",
        "cpu.job_cores",
        "cpu.host_busy_cores",
    ),
    # the begin of an epoch comes with a period
    explains=("COM001", "COM002", "RUN004"),
    thresholds={
        "threads": Threshold(1.5, "half as many again: with fewer a thread mostly finds a core at once"),
        "waiting": Threshold(
            0.4,
            "of the time in which a worker could run: of 2, 3 and 4 workers at once on two cores 0.11, 0.22 and 0.37, and one of them was "
            "as fast; of 5, 6, 8 and 12 0.46, 0.52, 0.66 and 0.83, and one was 1.07, 1.10, 1.12 and 1.26 times as fast",
        ),
        "spare_cores": Threshold(0.5, "half a core, as for DAT001: with less left the cores are the limit"),
        "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
        "others": Threshold(
            0.25, "a quarter of the cores: from there on the neighbours are the first to mend (CPU003)"
        ),
    },
)
