"""GPU memory growth.

What it does: finds ranks whose tensors take more and more GPU memory at the end of their steps.

Fires when: the tensors left at the end of steps grow by ≥ 5 %, keep growing, and grow more than the batches.

Why it matters: training is as fast as ever until an allocation fails, hours into the run.

Evidence: torch's count of allocated bytes at the end of steps, once a second, as the median of each third of the run
after its first quarter, and the median slope between all its readings.

Fix: results that are kept with their graph: `total += loss` keeps every step's graph, `total += loss.item()` or
`loss.detach()` none. Lists of outputs or metrics on the GPU belong on the CPU.

Estimate: none while it lasts; the severity follows the time until the GPU is full: ten minutes critical, an hour high,
twelve hours medium.

False alarms: evaluation, compilation and caches take their memory once: the last third then grows less than the one
before. Batches that grow by design (larger images, longer texts) increase memory too: the rule stays silent if memory
grew no more than the batches. The recorder does not see batches that grow on the GPU itself.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuMemoryTrend
from rn50_advisor.advisor.model.job_changes import NumbersKept
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_MEMORY_WATCHED
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_measured, unmeasured_of_ranks
from rn50_advisor.rules.memory.memory_growth import growth_severity, growth_title, rises
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    growing = [trend for trend in a.gpu_view.memory if _rises(trend, t)]
    if not growing:
        return clear_if_measured(RULE.id, *unmeasured_of_ranks(a, GPU_MEMORY_WATCHED))
    first = min(growing, key=_lasts_s)
    lasts_s = _lasts_s(first)
    died = any("out of memory" in death.exception for death in a.deaths if death.rank in {c.rank for c in growing})
    level: Severity = "critical" if died else growth_severity(lasts_s)
    ranks = sorted(trend.rank for trend in growing)
    return Finding(
        rule=RULE.id,
        title=_title(first, lasts_s, died=died),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(
            ranks=() if len(ranks) == a.world_size > 1 else tuple(ranks),
            gpus=tuple(sorted({trend.gpu for trend in growing if trend.gpu is not None})),
        ),
        evidence=tuple(_evidence(trend, t) for trend in growing[:3]),
        fixes=(
            Fix.of(
                f"find the tensors that rank {first.rank} keeps from every step",
                NumbersKept(),
                None,
                "small change",
            ),
        ),
        fatal=died,
        urgent=level == "critical",
    )


def _rises(trend: GpuMemoryTrend, t: Thresholds) -> bool:
    """True if memory grows by enough, over enough steps, no less in the last third than before, and by more than the batches."""
    first, _, third = trend.thirds_mb
    with_batches = trend.batch_times >= t["batches"] and third <= t["batches"] * trend.batch_times * first
    return trend.steps >= t["steps"] and rises(trend.thirds_mb, trend.growth, t) and not with_batches


def _lasts_s(trend: GpuMemoryTrend) -> float:
    """Seconds until the GPU is full; infinite if its size is not known."""
    if trend.left_mb is None or trend.mb_per_step <= 0 or trend.steps <= 0:
        return math.inf
    return trend.left_mb / trend.mb_per_step * (trend.seconds / trend.steps)


def _title(trend: GpuMemoryTrend, lasts_s: float, *, died: bool) -> str:
    if died:
        return f"GPU memory of rank {trend.rank} grew until an allocation failed"
    return growth_title(f"GPU memory of rank {trend.rank}", lasts_s)


def _evidence(trend: GpuMemoryTrend, t: Thresholds) -> Evidence:
    first, _, third = trend.thirds_mb
    lasts_s = _lasts_s(trend)
    note = (
        f"rank {trend.rank}: from {first:.0f} to {third:.0f} MB between the first and the last third of "
        f"{trend.steps:.0f} steps, {trend.mb_per_step:.3g} MB per step"
    )
    note += f"; exhausted in {duration(lasts_s)} at this rate" if math.isfinite(lasts_s) else ""
    return Evidence("GPU memory growth", trend.growth, "share", t["growth"], note)


RULE = rule(
    __name__,
    "GPU memory growth",
    check,
    severities=("critical", "high", "medium", "low"),
    needs=(GPU_MEMORY_WATCHED,),
    thresholds={
        "growth": Threshold(0.05, "of the tensors' memory in the first third: less may be an unusual batch"),
        "steps": Threshold(50, "steps after the warm-up: a handful shows no trend"),
        "batches": Threshold(1.1, "times as large: the recorder does not distinguish smaller differences"),
        "lasting": Threshold(0.3, "of the growth in each half: memory that settles grows less in the second"),
    },
)
