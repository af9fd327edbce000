"""What the rules on preprocessing share: the crowd that workers make on the cores, and the step with less for them to compute."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.rules.analysis_reading import beside_batches, common, cpu_of_workers_s, delay_of_own_making, model_of
from rn50_advisor.rules.rule import Threshold

CROWDED: Mapping[str, Threshold] = {
    "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
    "crowding": Threshold(
        0.10,
        "a tenth of the step, as for neighbours (CPU003); sound jobs without workers show 2 to 5 %, one showed 10 %",
    ),
    "workers_share": Threshold(0.20, "of the job's CPU time: less, and it is others than the workers who crowd"),
}


def crowding_by_workers(a: Analysis, least_share: float) -> dict[int, float]:
    """Seconds per step that each rank's training thread waits for a core of the job's own; empty where workers compute less of all."""
    few = cpu_of_workers_s(a) < least_share * (a.get("cpu.job_cores") or math.inf) * a.value("step.time_s")
    return {} if few else delay_of_own_making(a)


def crowd_s(a: Analysis, least_share: float) -> float:
    """The same of at least half of the ranks."""
    crowding = crowding_by_workers(a, least_share)
    return common(crowding) if crowding else 0.0


def step_with_less_work(
    a: Analysis, crowding: Mapping[int, float], share: float, spared_s: float, *, floor_s: float = 0.0
) -> float:
    """Step time when this share of the wait for input and of the crowding is gone, and so many CPU seconds of the host's workers."""
    model, changes = model_of(a), {}
    for rank in a.by_rank("step.input_wait_s"):
        own, first = model.own[rank], beside_batches(a, rank)
        changes[rank, "input_wait"] = first + (1.0 - share) * max(0.0, own["input_wait"] - first)
        # who waits for a batch stands in no line: it does in the rest of the step
        rest = {phase: seconds for phase, seconds in own.items() if phase != "input_wait"}
        keep = max(0.0, 1.0 - share * crowding.get(rank, 0.0) / max(sum(rest.values()), 1e-9))
        changes |= {(rank, phase): seconds * keep for phase, seconds in rest.items()}
    rest_s = None if model.job_cpu_s is None else max(0.0, model.job_cpu_s - spared_s)
    return model.step_if(changes, floor_s=max(floor_s, 0.0 if rest_s is None else model.cpu_floor_s(rest_s)))
