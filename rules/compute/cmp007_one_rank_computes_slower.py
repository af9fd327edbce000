"""One rank computes slower.

What it does: finds a rank whose forward, backward (without communication) and optimizer take clearly longer than the
others' while it arrives last at the gradient all-reduce.

Fires when: its compute is ≥ 1.2 × the others', longer by ≥ 5 % of the step less two standard errors, and it arrives last.

Why it is slow: every step waits for this rank. Its own communication is the shortest of all; the others' is long
because they wait.

Evidence: this rank's own compute against the median of the others; the phase, or the copies to its GPU, in which most
of the difference lies, or how much larger its batches are; the share of steps in which it arrives last. Several ranks
that are equally slow (those of a bad host) are named together: none of them is always last, but together they cause
nearly all of the waiting.

Fix: retest the rank on another GPU or host, look for extra work that only it does. If its batches hold more data:
distribute batches of similar size over the ranks in turn, or fill them by tokens. Shares drawn at random would be even too,
but if batches are padded to their longest sample, all ranks would then pad more: measured here, the job became slower.

Estimate: this rank's compute drops to the median of the others. If its batches are larger, their work is shared out:
all ranks then compute as long as they do on average now.

False alarms: a thread that waits for a core does not compute more slowly: its run-queue delay is subtracted first. So
is its kernel time: depending on the layout of its heap, malloc may return memory to the system in each step of one rank
but not of another (measured here: 5,800 page faults a step against 3,400, 5 ms of 44). A CPU quota, neighbours on its
cores or a throttled GPU also slow down a rank: they are then the root cause and explain this finding.
"""

from __future__ import annotations

import math
from statistics import mean, median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.comm_measures import COMM_EXCESS_ERROR_S, COMM_LATE_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import COPY_BLOCKING_S, COPY_PAGEABLE_S
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_COMPUTE_S,
    STEP_RUN_DELAY_S,
    STEP_SYSTEM_S,
    STEP_TIME_S,
)
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity
from rn50_advisor.rules.stragglers import apart, last_share, named, since, sure

_SAMPLED_BATCHES_MIN = 5
_SIZE_RATIO_MIN = 1.1  # times as much data: less may be chance
_EXPLAINED_SHARE_MIN = (
    0.5  # of how much slower a rank computes; attention grows faster than its input, fixed costs not at all
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    step, model = a.value(STEP_TIME_S), model_of(a)
    # waiting for a core and kernel time for memory are not slower computing
    delays, system = a.by_rank(STEP_RUN_DELAY_S), a.by_rank(STEP_SYSTEM_S)
    whole = a.by_rank(STEP_COMPUTE_S)
    compute = {rank: max(0.0, s - delays.get(rank, 0.0) - system.get(rank, 0.0)) for rank, s in whole.items()}
    if len(compute) < 2:
        return Clear(RULE.id)
    ranks, usual = apart(compute, lambda own, rest: own >= t["ratio"] * rest and own - rest >= t["excess"] * step)
    rank = max(ranks, key=lambda r: compute[r])
    rest = [own for r, own in model.own.items() if r not in ranks]
    larger = _larger(a, ranks, compute[rank] / usual if usual > 0 else math.inf)
    if larger:
        even = mean(compute.values())
        after = model.step_if(
            {(r, p): own[p] * even / max(compute[r], 1e-9) for r, own in model.own.items() for p in COMPUTE}
        )
    else:
        after = model.step_if({(r, p): median(own[p] for own in rest) for r in ranks for p in COMPUTE})
    late = last_share(a, ranks, t["late"])
    level = severity((step - after) / step)
    excess = sum(a.excess[rank].values())
    # delays and kernel time are read in few steps only: the difference must be there without subtracting them, too
    slower_s = min(compute[rank] - usual, whole[rank] - median(s for r, s in whole.items() if r not in ranks))
    slower_s -= a.by_rank(COMM_EXCESS_ERROR_S).get(rank, 0.0)
    slower = compute[rank] >= t["ratio"] * usual and compute[rank] - usual >= t["part"] * excess
    if not slower or slower_s < t["excess"] * step or late < t["late"] or level is None:
        return Clear(RULE.id)
    who, s = named(ranks)
    copied = _beyond(_copies(a), ranks, rank)
    in_copies = copied >= t["part"] * (compute[rank] - usual)
    phase = max(COMPUTE, key=lambda p: a.excess[rank][p])
    most, more_s = ("copies to the GPU", copied) if in_copies else (phase, a.excess[rank][phase])
    retest = "on another GPU or host" if a.on_gpu else "on another host"
    larger_words = f": {'its' if s else 'their'} batches are larger" if larger else ""
    basis = (
        "all ranks compute equally long, their total stays the same"
        if larger
        else f"{who} compute{s} as fast as the others"
    )
    return Finding(
        rule=RULE.id,
        title=f"{who.capitalize()} compute{s} slower than the others" + larger_words,
        severity=level,
        confidence=sure(a, late),
        seconds_per_step=step - after,
        scope=Affected(ranks=ranks, since_step=since(a, ranks)),
        evidence=(
            Evidence.of(
                STEP_COMPUTE_S,
                compute[rank],
                t["ratio"] * usual,
                f"rank {rank} computes {1000 * compute[rank]:.0f} ms in each step, the others {1000 * usual:.0f} ms",
            ),
            Evidence.of(COMM_LATE_SHARE, late, t["late"], f"{who} arrive{s} last at the all-reduce"),
            Evidence("batch size", larger, "×", None, f"the data in the batches of {who}, relative to the others'")
            if larger
            else Evidence(
                "phase", most, "", None, f"most of it in its {most}: {1000 * more_s:.0f} ms more than the others"
            ),
        ),
        fixes=_even_batches(a, rank)
        if larger
        else (
            Fix(
                f"find what slows the copies of rank {rank}",
                "its GPU's link (GPU006), memory that is not pinned (H2D001), cores far from its GPU (CPU004)",
                None,
                "small change",
            )
            if in_copies
            else Fix(f"find what rank {rank} does in addition, or what slows its processor", "", None, "small change"),
            *((Fix(f"retest {who} {retest}", "", None, "outside the code"),) if a.on_gpu or len(a.nodes) > 1 else ()),
        ),
        saving=model.saving(model.at_best(after), after + 0.25 * (step - after), basis),
    )


def _larger(a: Analysis, ranks: tuple[int, ...], slower: float) -> float | None:
    """Size of these ranks' batches relative to the others'; None unless that explains most of their slower computation."""
    facts = {r: batches for r in model_of(a).own if (batches := facts_of(a, r).get("batch_sizes")) and batches["bytes"]}
    sizes = {r: batches["bytes"] / batches["looks"] for r, batches in facts.items()}
    own, others = [sizes[r] for r in ranks if r in sizes], [size for r, size in sizes.items() if r not in ranks]
    if not own or not others:
        return None
    ratio = mean(own) / median(others)
    scatter = (
        math.sqrt(max(0.0, batches["squares"] / batches["looks"] / sizes[r] ** 2 - 1.0)) for r, batches in facts.items()
    )
    sampled = min(batches["looks"] for batches in facts.values())
    error = max(scatter) * math.sqrt(2.0 / sampled)
    explains = ratio - 1.0 >= _EXPLAINED_SHARE_MIN * (slower - 1.0)
    return ratio if explains and sampled >= _SAMPLED_BATCHES_MIN and ratio - 2.0 * error >= _SIZE_RATIO_MIN else None


def _even_batches(a: Analysis, rank: int) -> tuple[Fix, ...]:
    where = where_of(training_loader(a, {rank: 0.0}))
    return (
        Fix(
            "distribute batches of similar size over the ranks in turn",
            "a batch sampler over the whole data set: sort by size, cut into batches, rank r of n takes r, r + n, …",
            where,
            "small change",
        ),
        Fix("or fill each batch up to a number of tokens instead of samples", "", where, "small change"),
    )


def _copies(a: Analysis) -> dict[int, float]:
    """Host seconds per rank in copies to its GPU."""
    kinds = [a.by_rank(measure) for measure in (COPY_PAGEABLE_S, COPY_BLOCKING_S)]
    return {rank: sum(kind.get(rank, 0.0) for kind in kinds) for rank in a.by_rank(STEP_COMPUTE_S)}


def _beyond(seconds: dict[int, float], ranks: tuple[int, ...], rank: int) -> float:
    return seconds[rank] - median(s for r, s in seconds.items() if r not in ranks)


RULE = rule(
    __name__,
    "one rank computes slower",
    check,
    needs=(STEP_TIME_S, STEP_COMPUTE_S, COMM_LATE_SHARE),
    thresholds={
        "ratio": Threshold(
            1.20, "two sound ranks on one CPU host differed by up to 1.10, by 1.18 next to a busy process"
        ),
        "excess": Threshold(
            0.05, "of the step: if computing is short, a rank may differ by more than a tenth and cost nothing"
        ),
        "part": Threshold(0.5, "of the rank's extra time: below it compute is not what makes the rank late"),
        "late": Threshold(0.5, "the slow rank comes last in most steps; by chance, ranks take turns"),
    },
)
