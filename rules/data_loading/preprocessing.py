"""Shared by the rules on preprocessing: contention for cores caused by workers, and the step with less work for them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.forecast.worker_model import WorkerModel, step_with_cheaper_batches
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.measures.host_measures import CPU_JOB_CORES, THREADS_INTRA_OP
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_INPUT_WAIT_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.measures.storage_measures import STORAGE_SAMPLE_KB
from rn50_advisor.rules.analysis_reading import (
    beside_batches,
    common,
    cpu_of_workers_s,
    held_up_s,
    model_of,
    own_delay_s,
)
from rn50_advisor.rules.rule import Threshold, Thresholds

_STACKS_MIN = 6
_USED_SHARE_MAX = 0.25  # of what is read, in a batch: less than that is read for nothing
CROWDED: Mapping[str, Threshold] = {
    "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
    "crowding": Threshold(
        0.10,
        "a tenth of the step, as for neighbours (CPU003); sound jobs without workers show 2 to 5 %, one showed 10 %",
    ),
    "workers_share": Threshold(
        0.20, "of the job's CPU time: below it, the workers are not the ones that compete for cores"
    ),
}


def dominant_line(a: Analysis, least: float) -> SampleLine | None:
    """The line of user code with this share of the stacks of processes that make samples, by itself or with what it calls; None without
    one, or with too few stacks.
    """
    if a.sample is None:
        return None
    lines = (*a.sample.lines[:1], *reversed(a.sample.path))
    return next((line for line in lines if line.share >= least and line.looks >= _STACKS_MIN), None)


def read_for_nothing(a: Analysis) -> str:
    """What to do if most of what is read for a sample never reaches its batch; empty if it does, or if that is not known."""
    asked_kb, samples = a.get(STORAGE_SAMPLE_KB), a.get(STEP_SAMPLES)
    if a.sample is None or not a.sample.batch_bytes or not asked_kb or not samples:
        return ""
    used_kb = a.sample.batch_bytes * max(a.by_rank(STEP_BATCHES).values(), default=1.0) / samples / 1e3
    if used_kb > _USED_SHARE_MAX * asked_kb:
        return ""
    return (
        f"of {asked_kb:,.0f} KB read for a sample {used_kb:,.0f} KB are in its batch: read that part of the file alone (seek, "
        "numpy.memmap, a frame offset), or store samples as they are used; "
    )


def crowding_by_workers(a: Analysis, least_share: float) -> dict[int, float]:
    """Seconds per step that each rank is held up by threads without a core; empty below this share of worker CPU time."""
    return held_up_s(a) if _workers_compute(a, least_share) else {}


def crowd_s(a: Analysis, least_share: float) -> float:
    """Seconds per step that the training threads of at least half of the ranks wait for a core held by the job; 0 if workers use too little
    CPU.
    """
    crowding = own_delay_s(a) if _workers_compute(a, least_share) else {}
    return common(crowding) if crowding else 0.0


def _workers_compute(a: Analysis, least_share: float) -> bool:
    return cpu_of_workers_s(a) >= least_share * (a.get(CPU_JOB_CORES) or math.inf) * a.value(STEP_TIME_S)


def step_with_less_work(
    a: Analysis, crowding: Mapping[int, float], share: float, spared_s: float, *, floor_s: float = 0.0
) -> float:
    """Step time without this share of the input wait and of the contention, and without `spared_s` CPU seconds of the host's workers."""
    model, changes = model_of(a), {}
    threads = a.by_rank(THREADS_INTRA_OP)
    for rank in a.by_rank(STEP_INPUT_WAIT_S):
        own, first = model.own[rank], beside_batches(a, rank)
        changes[rank, "input_wait"] = first + (1.0 - share) * max(0.0, own["input_wait"] - first)
        # a thread that waits for a batch needs no core: contention affects the rest of the step
        rest = {phase: seconds for phase, seconds in own.items() if phase != "input_wait"}
        keep = max(0.0, 1.0 - share * crowding.get(rank, 0.0) / max(sum(rest.values()), 1e-9))
        changes |= {(rank, phase): seconds * keep for phase, seconds in rest.items()}
        if threads.get(rank, 1.0) > 1.0:  # while one of them has no core, the others spin
            spared_s += share * crowding.get(rank, 0.0)
    rest_s = None if model.job_cpu_s is None else max(0.0, model.job_cpu_s - spared_s)
    return model.step_if(changes, floor_s=max(floor_s, 0.0 if rest_s is None else model.cpu_floor_s(rest_s)))


def steps_with_cores(a: Analysis, least_share: float, gone: tuple[float, float]) -> tuple[float, float]:
    """(best, worst) step of a loop whose batches are ready, but whose workers hold the cores that it computes on, without these shares of
    their work.
    """
    crowding, work = crowding_by_workers(a, least_share), cpu_of_workers_s(a)
    best, worst = (step_with_less_work(a, crowding, each, each * work) for each in gone)
    return best, worst


def steps_without(
    a: Analysis,
    t: Thresholds,
    workers: WorkerModel,
    gone: tuple[float, float],
    *,
    waited: bool,
    crowded: bool,
) -> tuple[float, float]:
    """(best, worst) step without these shares of the work for a batch: the shorter one where the loop waits for batches and for cores."""
    ways = [steps_with_batches(a, workers, gone)] if waited else []
    ways += [steps_with_cores(a, t["workers_share"], gone)] if crowded else []
    best, worst = map(min, zip(*ways, strict=True))
    return best, worst


def steps_with_batches(a: Analysis, workers: WorkerModel, gone: tuple[float, float]) -> tuple[float, float]:
    """(best, worst) step of a loop that waits for its batches, without these shares of their time.

    At best the hand-over becomes shorter by as much: a worker's thread that sends a batch waits for the interpreter that makes the next.
    """
    lefts = (1.0 - each for each in gone)
    ends = [step_with_cheaper_batches(workers, left, waiting=left, hand_over=left) for left in lefts]
    best, worst = (end[n] if end else a.value(STEP_TIME_S) for n, end in enumerate(ends))
    return best, worst
