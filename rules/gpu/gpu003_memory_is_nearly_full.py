"""GPU memory nearly full.

What it does: finds ranks whose allocations succeeded only after emptying torch's cache, and ranks whose tensors fill
nearly all of their GPU.

Fires when: allocations had to empty the cache, or tensors take ≥ 90 % of the memory.

Why it is slow: an allocation that does not fit frees all cached blocks, which waits for the GPU, and asks the driver
again. A job that only just fits also dies at the first larger batch, evaluation or library workspace.

Evidence: torch's own count of retries in the steady steps; the peak that its allocator reserved and the peak of its
tensors, as shares of the memory (of the partition for a MIG instance). Fragmentation is the part of the reserved memory
that tensors never used at once, 1 - peak / reserved: if allocations fail while it is high, they failed because no free
block was large enough.

Fix: against fragmentation `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, unless that is set or CUDA's own
allocator is used; otherwise AMP, a smaller batch with accumulation, or activation checkpointing.

Estimate: none: the cost of a retry is not measured.

False alarms: the allocator keeps memory that it once reserved. A full reserve with tensors far below it is a cache and
does no harm.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.allocator_settings import growing_segments
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_ALLOC_RETRIES,
    GPU_FRAGMENTED_SHARE,
    GPU_MEMORY_WATCHED,
    GPU_PEAK_SHARE,
    GPU_RESERVED_SHARE,
)
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_measured, unmeasured_of_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

# Unused share of the reserved memory: with less, joining the pieces gains little.
_FRAGMENTATION_MIN = 0.10


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    retries, reserved, peak = map(a.by_rank, (GPU_ALLOC_RETRIES, GPU_RESERVED_SHARE, GPU_PEAK_SHARE))
    pieces = {r: share for r, share in a.by_rank(GPU_FRAGMENTED_SHARE).items() if retries.get(r, 0) >= t["retries"]}
    retrying = [rank for rank, count in retries.items() if count >= t["retries"]]
    full = [r for r, share in reserved.items() if share >= t["reserved"] and peak.get(r, 0.0) >= t["peak"]]
    ranks = sorted({*retrying, *full})
    if not ranks:
        return clear_if_measured(RULE.id, *unmeasured_of_ranks(a, GPU_MEMORY_WATCHED, GPU_RESERVED_SHARE))
    evidence = []
    if retrying:
        rank = max(retrying, key=lambda r: retries[r])
        note = f"rank {rank}: the cache was emptied {retries[rank]:.0f} times in the steady steps to make room"
        evidence.append(Evidence.of(GPU_ALLOC_RETRIES, retries[rank], t["retries"], note))
    if pieces:
        rank = max(pieces, key=lambda r: pieces[r])
        note = f"of the memory that rank {rank} reserved, never used by tensors at once"
        evidence.append(Evidence.of(GPU_FRAGMENTED_SHARE, pieces[rank], _FRAGMENTATION_MIN, note))
    if full:
        rank = max(full, key=lambda r: peak[r])
        note = f"rank {rank}: reserved; tensors use up to {100 * peak[rank]:.0f} %"
        evidence.append(Evidence.of(GPU_RESERVED_SHARE, reserved[rank], t["reserved"], note))
    often = bool(retrying) and max(retries.values()) >= t["often"] * a.step_time.steady_steps
    return Finding(
        rule=RULE.id,
        title="GPU memory nearly full: allocations empty the cache" if retrying else "GPU memory nearly full",
        severity="medium" if often else "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(ranks=() if len(ranks) == a.world_size > 1 else tuple(ranks)),
        evidence=tuple(evidence),
        fixes=_fixes(a, fragmented=max(pieces.values(), default=1.0) >= _FRAGMENTATION_MIN),
    )


def _fixes(a: Analysis, *, fragmented: bool) -> tuple[Fix, ...]:
    less = Fix("AMP, a smaller batch with accumulation, or activation checkpointing", "", None, "small change")
    setting = growing_segments(a.meta.environment)
    if not fragmented or setting is None:
        return (less,)
    return Fix.of("let the allocator grow its segments in place", setting, None, "one line"), less


RULE = rule(
    __name__,
    "GPU memory nearly full",
    check,
    severities=("medium", "low"),
    needs=(GPU_MEMORY_WATCHED,),
    thresholds={
        "retries": Threshold(1, "retry: each one has emptied the cache and waited for the GPU"),
        "reserved": Threshold(0.95, "of the memory: CUDA's own context and libraries need the rest"),
        "peak": Threshold(0.90, "of the memory, by tensors: below it the reserve is a cache"),
        "often": Threshold(0.01, "retries per step: from there on a few unusual shapes do not explain it"),
    },
)
