"""CPU quota throttling.

What it does: finds ranks whose control group used up its CPU quota while they trained.

Fires when: the rank's own control group is throttled for ≥ 5 % of the wall time.

Why it is slow: once a group has used its quota for a period (usually 100 ms), the kernel stops all its threads until
the next period. The cores look idle, `nproc` and `cpu_count` show all of them, and every thread pool is sized for cores
that are not available.

Evidence: the quota in cores; the share of enforcement periods in which the group was throttled; throttled seconds per
second.

Fix: raise or remove the limit (`docker --cpus`, Kubernetes `limits.cpu`, the cgroup's `cpu.max`); until then size
worker and thread counts to the quota.

Estimate: a throttled rank drops to the median of the ranks that are not throttled, and the steps that a pause made
longer shrink with it. If all ranks are throttled, their throttled time is regained, down to their CPU work on all cores
of the host. At best the threads that run their collectives regain as much.

False alarms: a quota that is never reached throttles nothing and is not reported.
"""

from __future__ import annotations

import numpy as np

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_HOST_CORES,
    QUOTA_CORES,
    QUOTA_THROTTLED_S_PER_S,
    QUOTA_THROTTLED_SHARE,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import since

# Share of a throttled rank's lag that may have other causes.
NOT_GIVEN_BACK = 0.25


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    throttled, periods = a.by_rank(QUOTA_THROTTLED_S_PER_S), a.by_rank(QUOTA_THROTTLED_SHARE)
    quota, step = a.by_rank(QUOTA_CORES), a.value(STEP_TIME_S)
    model, host_cores = model_of(a), a.get(CPU_HOST_CORES)
    # a rank may have a quota before its first step
    ranks = tuple(
        r
        for r in model.own
        if r in quota and throttled.get(r, 0.0) >= t["held"] and periods.get(r, 0.0) >= t["periods"]
    )
    if not ranks:
        return Clear(RULE.id)
    best, worst = _after(model, throttled, ranks, 1.0, host_cores), _after(model, throttled, ranks, 0.5, host_cores)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    who = (
        f"rank {ranks[0]}"
        if len(ranks) == 1
        else "the job"
        if len(ranks) == len(model.own)
        else f"ranks {numbers(ranks)}"
    )
    first = ranks[0]
    limit = f"{quota[first]:g} core{'' if quota[first] == 1 else 's'}"
    return Finding(
        rule=RULE.id,
        title=f"CPU quota of {limit} throttles {who}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(ranks) == len(model.own) else ranks, since_step=since(a, ranks)),
        evidence=(
            Evidence.of(
                QUOTA_THROTTLED_SHARE,
                periods[first],
                t["periods"],
                f"{who} throttled in {100 * periods[first]:.0f} % of the quota's periods",
            ),
            Evidence.of(
                QUOTA_THROTTLED_S_PER_S,
                throttled[first],
                t["held"],
                "of wall time",
                form="explains",
            ),
            Evidence.of(
                QUOTA_CORES,
                quota[first],
                note="the limit" + (f"; the host shows {host_cores:g}" if host_cores else ""),
                form="explains",
            ),
        ),
        fixes=(
            Fix("raise or remove the CPU limit of the container or control group", "", None, "outside the code"),
            Fix(f"until then: OMP_NUM_THREADS and worker counts that fit {limit}", "", None, "one line"),
        ),
        saving=model.saving(model.at_best(best), worst, "no quota"),
    )


def _after(
    model: StepModel, throttled: dict[int, float], ranks: tuple[int, ...], given_back: float, host_cores: float | None
) -> float:
    """Step time if the throttled ranks regain this share of their throttled time, or become as fast as the others."""
    free = [rank for rank in model.own if rank not in ranks]
    # throttling stops all threads of a group, including those that run its collectives; at best they alone slowed communication
    wire_s = (
        model.wire_s * (1.0 - min(0.9, max(throttled[rank] for rank in ranks))) if given_back == 1.0 else model.wire_s
    )
    unsure = 0.0 if given_back == 1.0 else NOT_GIVEN_BACK
    changes = {}
    for rank in ranks:
        own = model.own_s(rank)
        # several cores may be throttled at once: count at most nine tenths of the wall time
        target = own - given_back * min(throttled[rank], 0.9) * own
        if free:
            usual = float(np.median([model.own_s(other) for other in free]))
            target = usual + unsure * max(0.0, own - usual)
        for phase, seconds in model.own[rank].items():
            changes[rank, phase] = seconds * target / own if own > 0 else 0.0
    if not free:
        return model.step_if(
            changes, wire_s=wire_s, floor_s=(model.job_cpu_s or 0.0) / host_cores if host_cores else 0.0
        )
    # throttling hits some steps, not all: it shows in the mean step, not in the rank's usual work
    pauses_s = max(throttled[rank] for rank in ranks) * model.step_s
    return model.step_if(
        changes, wire_s=wire_s, jitter_s=model.jitter_s - (1.0 - unsure) * min(model.jitter_s, pauses_s)
    )


RULE = rule(
    __name__,
    "CPU quota throttling",
    check,
    needs=(STEP_TIME_S, QUOTA_THROTTLED_S_PER_S),
    thresholds={
        "held": Threshold(0.05, "a twentieth of the wall time"),
        "periods": Threshold(0.05, "of the periods: throttling in fewer costs less than the step's jitter"),
    },
    triage_checks=("cpu.cores_allowed", "cpu.throttled_share"),
)
