"""Memory is nearly full.

What it does: finds ranks whose allocations had to empty torch's cache before they fitted, and ranks whose tensors fill nearly all of
their GPU.

Why it is slow: an allocation that does not fit frees all cached blocks, which waits for the GPU, and asks the driver again. And a job
that fits by a hair dies at the first larger batch, evaluation or library workspace.

Evidence: torch's own count of retries in the steady steps; what its allocator reserved and what tensors took at most, as shares of the
memory (of a MIG instance: of its part). Fragmentation is what of the reserved memory tensors never took at once, 1 - peak / reserved: where
allocations fail beside it, they failed for want of a piece that is large enough.

Fix: where the memory is in pieces `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, unless that is set or CUDA's own allocator is; else
AMP, a smaller batch with accumulation, activation checkpointing.

Estimate: none: what a retry takes is not measured.

False alarms: the allocator keeps what it once got. A full reserve with tensors far below it is a cache and no trouble.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.allocator_settings import growing_segments
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_seen, unseen_of_ranks
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

# Of what is reserved: where less is left over, joining the pieces makes no room to speak of.
_IN_PIECES = 0.10


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    retries, reserved, peak = (a.by_rank(f"gpu.{n}") for n in ("alloc_retries", "reserved_share", "peak_share"))
    pieces = {r: share for r, share in a.by_rank("gpu.fragmented_share").items() if retries.get(r, 0) >= t["retries"]}
    retrying = [rank for rank, count in retries.items() if count >= t["retries"]]
    full = [r for r, share in reserved.items() if share >= t["reserved"] and peak.get(r, 0.0) >= t["peak"]]
    ranks = sorted({*retrying, *full})
    if not ranks:
        return clear_if_seen(RULE.id, *unseen_of_ranks(a, "gpu.memory_watched", "gpu.reserved_share"))
    evidence = []
    if retrying:
        rank = max(retrying, key=lambda r: retries[r])
        note = f"rank {rank}: the cache was emptied {retries[rank]:.0f} times in the steady steps to make room"
        evidence.append(Evidence("gpu.alloc_retries", retries[rank], "retries", t["retries"], note))
    if pieces:
        rank = max(pieces, key=lambda r: pieces[r])
        note = f"rank {rank}: of what is reserved, never taken by tensors at once"
        evidence.append(Evidence("gpu.fragmented_share", pieces[rank], "", _IN_PIECES, note))
    if full:
        rank = max(full, key=lambda r: peak[r])
        note = f"rank {rank}: reserved; tensors took up to {100 * peak[rank]:.0f} %"
        evidence.append(Evidence("gpu.reserved_share", reserved[rank], "", t["reserved"], note))
    often = bool(retrying) and max(retries.values()) >= t["often"] * a.step_time.steady_steps
    return Finding(
        rule=RULE.id,
        title="GPU memory runs short: allocations empty the cache" if retrying else "GPU memory is nearly full",
        severity="medium" if often else "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(ranks=() if len(ranks) == a.world_size > 1 else tuple(ranks)),
        evidence=tuple(evidence),
        fixes=_fixes(a, in_pieces=max(pieces.values(), default=1.0) >= _IN_PIECES),
    )


def _fixes(a: Analysis, *, in_pieces: bool) -> tuple[Fix, ...]:
    less = Fix("AMP, a smaller batch with accumulation, or activation checkpointing", "", None, "small change")
    setting = growing_segments(a.meta.environment)
    whole = Fix("let the allocator grow its segments in place", setting, None, "one line")
    return (whole, less) if in_pieces and setting else (less,)


RULE = rule(
    __name__,
    "memory is nearly full",
    check,
    needs=("gpu.memory_watched",),
    thresholds={
        "retries": Threshold(1, "each one has emptied the cache and waited for the GPU"),
        "reserved": Threshold(0.95, "of the memory: CUDA's own context and libraries need the rest"),
        "peak": Threshold(0.90, "of the memory, by tensors: below it the reserve is a cache"),
        "often": Threshold(0.01, "retries for each step: then it is no accident of a few shapes"),
    },
)
