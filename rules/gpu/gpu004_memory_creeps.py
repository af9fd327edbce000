"""Memory creeps.

What it does: finds ranks whose tensors hold more and more of the GPU at the end of their steps.

Why it matters: training is as fast as ever until an allocation fails, hours into the run.

Evidence: torch's count of allocated bytes at the end of steps, once a second, as the median of each third of the run after its first
quarter, and the median slope between all its readings.

Fix: results that are kept with their graph: `total += loss` keeps every step's, `total += loss.item()` or `loss.detach()` none. Lists
of outputs or metrics on the GPU belong on the CPU.

Estimate: it costs no time while it lasts; severity follows the time until the GPU is full: ten minutes critical, an hour high, twelve
medium.

False alarms: evaluation, compilation and caches take their memory once: the last third then rises less than the one before. Batches that
grow by design (larger pictures, longer texts) take what is held with them: nothing is said where it grew no more than they did. Of
batches that grow on the GPU itself the recorder sees nothing.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuMemoryTrend
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_seen, unseen_of_ranks
from rn50_advisor.rules.memory.memory_growth import creeping_severity, creeping_title, rises
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    creeping = [trend for trend in a.gpu_view.memory if _rises(trend, t)]
    if not creeping:
        return clear_if_seen(RULE.id, *unseen_of_ranks(a, "gpu.memory_watched"))
    first = min(creeping, key=_lasts_s)
    lasts_s = _lasts_s(first)
    died = any("out of memory" in death.exception for death in a.deaths if death.rank in {c.rank for c in creeping})
    level: Severity = "critical" if died else creeping_severity(lasts_s)
    ranks = sorted(trend.rank for trend in creeping)
    return Finding(
        rule=RULE.id,
        title=_title(first, lasts_s, died=died),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(
            ranks=() if len(ranks) == a.world_size > 1 else tuple(ranks),
            gpus=tuple(sorted({trend.gpu for trend in creeping if trend.gpu is not None})),
        ),
        evidence=tuple(_evidence(trend, t) for trend in creeping[:3]),
        fixes=(
            Fix(
                f"find what rank {first.rank} keeps of every step",
                "total += loss.item()  # not `total += loss`, which keeps each step's graph",
                None,
                "small change",
            ),
        ),
        explains=("RUN002",) if died else (),
        fatal=died,
        urgent=level == "critical",
    )


def _rises(trend: GpuMemoryTrend, t: Thresholds) -> bool:
    """By enough, over enough steps, no less in the last third than before it, and by more than the batches."""
    first, _, third = trend.thirds_mb
    with_batches = trend.batch_times >= t["batches"] and third <= t["batches"] * trend.batch_times * first
    return trend.steps >= t["steps"] and rises(trend.thirds_mb, trend.growth, t) and not with_batches


def _lasts_s(trend: GpuMemoryTrend) -> float:
    """Seconds until the GPU is full; infinite where its size is not known."""
    if trend.left_mb is None or trend.mb_per_step <= 0 or trend.steps <= 0:
        return math.inf
    return trend.left_mb / trend.mb_per_step * (trend.seconds / trend.steps)


def _title(trend: GpuMemoryTrend, lasts_s: float, *, died: bool) -> str:
    if died:
        return f"GPU memory of rank {trend.rank} grew until an allocation failed"
    return creeping_title(f"GPU memory of rank {trend.rank}", lasts_s)


def _evidence(trend: GpuMemoryTrend, t: Thresholds) -> Evidence:
    first, _, third = trend.thirds_mb
    lasts_s = _lasts_s(trend)
    note = (
        f"rank {trend.rank}: from {first:.0f} to {third:.0f} MB between the first and the last third of "
        f"{trend.steps:.0f} steps, {trend.mb_per_step:.3g} MB a step"
    )
    note += f"; lasts {duration(lasts_s)} at this pace" if math.isfinite(lasts_s) else ""
    return Evidence("GPU memory growth", trend.growth, "share", t["growth"], note)


RULE = rule(
    __name__,
    "memory creeps",
    check,
    needs=("gpu.memory_watched",),
    thresholds={
        "growth": Threshold(0.05, "of what the tensors held in the first third: less is an odd batch"),
        "steps": Threshold(50, "after the warm-up: a handful of steps shows no trend"),
        "batches": Threshold(1.1, "times as large: by less the recorder does not tell them apart"),
        "lasting": Threshold(0.3, "of the growth in each half of it; what settles rises less in the second"),
    },
)
