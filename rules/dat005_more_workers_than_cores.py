"""More workers than cores.

What it does: finds training threads that lose core time to more loader workers than the allowed cores can run, where fewer would do.

Why it is slow: workers that make batches side by side take turns on the cores with the training thread. While it stands in the queue for a
core, the step stands too.

Evidence: workers and training threads that run or could run against the allowed cores; waiting for a core as a share of making a batch and
of computing a step.

Fix: `num_workers=N` at file and line, with the N that keeps up with the step and leaves each training thread a core.

Estimate: the training threads' waiting for a core given back, but never a step shorter than the job's CPU work over the allowed cores.
Where no core idles that is today's step: fewer workers do not make less work, and DAT001 says what helps. (Measured on two cores with
two ranks and 32 ms of transforms a batch: 8 workers a rank 57 and 61 ms a step, 2 workers 54 and 60, 1 worker 59.) What is left are
workers that crowd in bursts, with idle cores in between.

False alarms: neighbours on the host (CPU003), a quota (CPU001; the allowed cores respect it), threads of the ranks themselves (CPU005).
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from advisor.core.step_model import StepModel
from rules.reading import (
    cores_of,
    delay_evidence,
    idle_cores,
    mean,
    model_of,
    spare_cores,
    training_loader,
    where_of,
    without_delay,
    workers_for,
)
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    workers, delays, compute = a.by_rank("loader.workers"), a.by_rank("step.run_delay_s"), a.by_rank("step.compute_s")
    allowed, model = a.value("cpu.allowed_cores"), model_of(a)
    in_fetch, in_step = mean(a.by_rank("fetch.delay_share")), mean(delays) / max(mean(compute), 1e-9)
    runnable = _runnable(a)
    present = int(max(workers.values()))
    advised = workers_for(a)[0]
    best, worst = (_without(model, delays, share) for share in (1.0, 0.5))
    lost = model.step_s - 0.5 * (best + worst)
    level = severity(lost / model.step_s)
    crowded = runnable > t["threads"] * allowed and max(in_fetch, in_step) >= t["delay"]
    neighbours = (cores_of(a).taken or 0.0) >= t["others"] * allowed
    # exhausted cores have no time to give back, whoever stands in the queue
    exhausted = idle_cores(a) < spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
    if not crowded or exhausted or neighbours or advised >= present or level is None:
        return Clear(RULE.id)
    loader = training_loader(a, workers)
    return Finding(
        rule=RULE.id,
        title=f"{present} workers a rank crowd the training off {allowed:g} cores",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        evidence=(
            Evidence(
                "loader.workers",
                runnable,
                "threads",
                t["threads"] * allowed,
                f"{runnable:.1f} workers and training threads run or could run at a time, on {allowed:g} allowed cores",
            ),
            Evidence("fetch.delay_share", in_fetch, "", t["delay"], "of making a batch is waiting for a core"),
            delay_evidence(mean(delays), t["delay"] * mean(compute)),
        ),
        fixes=(
            Fix(
                f"num_workers={present} → {advised}",
                f"DataLoader(..., num_workers={advised})",
                where_of(loader),
                "one line",
            ),
        ),
        saving=model.saving(
            best, worst, "the training thread's waiting for a core given back, within the cores there are"
        ),
    )


def _runnable(a: Analysis) -> float:
    """Training threads, and the workers that compute or wait for a core at a time."""
    busy, cpu = a.by_rank("loader.busy_share"), a.by_rank("fetch.cpu_share")
    delay = a.by_rank("fetch.delay_share")
    making = {
        r: n * busy.get(r, 1.0) * min(1.0, cpu.get(r, 1.0) + delay.get(r, 0.0))
        for r, n in a.of_host(a.by_rank("loader.workers")).items()
    }
    return sum(making.values()) + len(making)


def _without(model: StepModel, delays: Mapping[int, float], share: float) -> float:
    """Step time when the ranks get this share of their waiting for a core back, as far as the cores allow."""
    changes = without_delay(model, {rank: share * delay for rank, delay in delays.items()})
    return model.step_if(changes, floor_s=model.cpu_floor_s())


RULE = rule(
    __name__,
    "more workers than cores",
    check,
    needs=(
        "step.time_s",
        "step.run_delay_s",
        "step.compute_s",
        "loader.workers",
        "loader.busy_share",
        "loader.foreseen",
        "fetch.wall_s",
        "fetch.cpu_share",
        "fetch.delay_share",
        "cpu.allowed_cores",
        "cpu.job_cores",
        "cpu.host_busy_cores",
    ),
    explains=("COM001", "COM002"),
    thresholds={
        "threads": Threshold(1.5, "half as many again: below it a thread mostly finds a core at once"),
        "spare_cores": Threshold(0.5, "half a core, as for DAT001: with less left the cores are the limit"),
        "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
        "others": Threshold(
            0.25, "a quarter of the cores: from there on the neighbours are the first to mend (CPU003)"
        ),
        "delay": Threshold(0.15, "in sound jobs with a worker beside each core it stays below a tenth"),
    },
)
