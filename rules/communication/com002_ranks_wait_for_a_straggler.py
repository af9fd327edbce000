"""Straggler rank.

What it does: finds ranks that reach the gradient all-reduce well before the last rank, and names the late rank and its
slow phase.

Fires when: ranks are ready ≥ 15 % of the step before the last one, and one rank causes ≥ 85 % of the waiting; ≥ 25 % of the step if
stragglers alternate on CPUs.

Why it is slow: the all-reduce does not finish on any rank before the last one has joined.

Evidence: how much earlier the other ranks are ready, as a share of the step; which rank comes last and how often (in
most steps, or in bursts); the phase in which it loses the time, and whether garbage collections, a quota or waiting for
a core stop it there; the step at which this began, if not the first; how much the sizes of batches differ.

Fix: remove the cause of the delay; if another rule names it, this finding is listed under that rule's. If ranks take
turns in being late since their batches differ in size, batches of similar size in the same step, at the loader's line; otherwise look for
garbage collection or neighbours.

Estimate: the step without any skew; where batches differ in size, with half of it, since their work remains.

False alarms: kernel time spent on this rank's memory in forward and backward, beyond the other ranks' (see CMP007), is
subtracted: it changes from one start of the same job to the next. A rank that is late only while it evaluates or writes
a checkpoint for all is explained by LOP001 or LOP003.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.comm_measures import (
    COMM_KEPT_WAITING_S,
    COMM_LATE_RUN_STEPS,
    COMM_LATE_SHARE,
    COMM_SKEW_S,
)
from rn50_advisor.advisor.model.measures.host_measures import QUOTA_THROTTLED_S_PER_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_COMPUTE_S, STEP_GC_S, STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.advisor.model.report import PHASE_TITLES
from rn50_advisor.advisor.model.statistics import others_median
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import heap_fault_s, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import batch_sizes, even_batches, named, since, sure

_SKEW_SHARE_MIN = 0.3  # of the skew
_STEPS_SHARE_MIN = 0.6  # of the steps
_SAMPLED_BATCHES_MIN = 5
# Standard deviation of a rank's computing, by the sizes of its batches, of the skew: two ranks whose computing scatters by 1 are 1.13 apart
# in the mean, more ranks further.
_SCATTER_OF_SKEW_MIN = 0.5
# The work remains and is shared: ranks that were the first then take longer. Two ranks of the seeded job became 1.38 times as fast, where
# the whole skew would have been 2.5 times.
_SPARED_OF_UNEVEN = 0.5
_BURST_RATIO_MIN = 2.0  # times as many steps in a row as by chance


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    skew, step, late = a.value(COMM_SKEW_S), a.value(STEP_TIME_S), a.by_rank(COMM_LATE_SHARE)
    kept = a.by_rank(COMM_KEPT_WAITING_S)
    ranks = _culprits(kept, t["costs"])
    rank = max(ranks, key=lambda r: kept[r])
    share = sum(late[r] for r in ranks)
    # judged by cost, not by frequency: a rank that a quota throttles in bursts is late in few steps but causes the waiting in them
    costs = sum(kept[r] for r in ranks) / skew if skew > 0 else 0.0
    persistent = costs >= t["costs"] and (share >= t["late"] or bool(_held_up(a, rank, skew)))
    if persistent:
        skew -= heap_fault_s(a, rank)
    level, scatter = severity(skew / step), 0.0
    line = t["skew"] if persistent or a.on_gpu else t["rotating_skew"]
    if skew < line * step or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    evidence = [Evidence.of(COMM_SKEW_S, skew, line * step, f"{100 * skew / step:.0f} % of the step")]
    if persistent:
        phase = max(a.excess[rank], key=lambda p: a.excess[rank][p])
        who, s = named(ranks)
        bursts = ", in bursts" if share < _STEPS_SHARE_MIN and _in_bursts(a, rank, late[rank]) else ""
        note = f"{who} come{s} last{bursts}: {100 * costs:.0f} % of the wait is for {'it' if s else 'them'}"
        evidence.append(Evidence.of(COMM_LATE_SHARE, share, t["late"], note))
        evidence.append(Evidence("phase", phase, "", None, f"rank {rank} loses time in: {PHASE_TITLES[phase]}"))
        evidence += _held_up(a, rank, skew)
        title, fix = (
            f"Straggler: {who}",
            f"find why {who} take{s} longer in: {PHASE_TITLES[phase]}",
        )
    else:
        evidence.append(
            Evidence.of(
                COMM_LATE_SHARE,
                late[rank],
                t["late"],
                "no rank is last most of the time: stragglers alternate",
                form="explains",
            )
        )
        title, fix = (
            "Alternating stragglers",
            "balance the work per step: sample sizes, garbage collection, other processes",
        )
        scatter = _uneven_batches(a, skew)
        if scatter:
            title = "Alternating stragglers: uneven batch sizes"
            note = "relative to their mean: how much the sizes of a rank's batches vary"
            evidence.append(Evidence("batch size", scatter, "ratio", None, note))
    spared = skew * (_SPARED_OF_UNEVEN if scatter else 1.0)
    after = max(step - spared, 1e-9)
    return Finding(
        rule=RULE.id,
        title=title,
        severity=level,
        confidence=sure(a, costs) if persistent else confidence(a, cap=0.7),
        seconds_per_step=spared,
        scope=Affected(ranks=ranks, since_step=since(a, ranks)) if persistent else Affected(),
        evidence=tuple(evidence),
        fixes=(even_batches(a) if scatter else ()) or (Fix(fix, "", None, "small change"),),
        saving=model.saving(after, after + 0.5 * spared, "ranks that arrive together"),
    )


def _uneven_batches(a: Analysis, skew: float) -> float:
    """How much sizes of batches differ within one rank, relative to their mean, if that explains much of the skew; else 0."""
    sizes, computing = batch_sizes(a), median(a.by_rank(STEP_COMPUTE_S).values() or [0.0])
    if len(sizes) < len(model_of(a).own) or min(size.looks for size in sizes.values()) < _SAMPLED_BATCHES_MIN:
        return 0.0
    scatter = min(size.scatter for size in sizes.values())
    return scatter if scatter * computing >= _SCATTER_OF_SKEW_MIN * skew else 0.0


def _held_up(a: Analysis, rank: int, skew: float) -> list[Evidence]:
    """Interruptions of this rank in any phase, if they exceed the other ranks' by enough to explain the skew."""
    step = a.value(STEP_TIME_S)
    throttled = {r: share * step for r, share in a.by_rank(QUOTA_THROTTLED_S_PER_S).items()}
    found = []
    for name, seconds, what in (
        (STEP_GC_S, a.by_rank(STEP_GC_S), "garbage collections"),
        (QUOTA_THROTTLED_S_PER_S, throttled, "throttled by its CPU quota"),
        (STEP_RUN_DELAY_S, a.by_rank(STEP_RUN_DELAY_S), "waiting for a core"),
    ):
        more = seconds[rank] - others_median(seconds, rank) if rank in seconds and len(seconds) > 1 else 0.0
        if name.startswith("quota") and len(seconds) == 1:
            more = seconds.get(rank, 0.0)  # the other ranks have no quota
        if more >= _SKEW_SHARE_MIN * skew:
            found.append(Evidence(name, more, "s", None, f"{what}: {duration(more)} per step more than the others"))
    return found


def _culprits(kept: Mapping[int, float], enough: float) -> tuple[int, ...]:
    """The fewest ranks, at most half of them, that cause this share of the waiting; else the rank that causes the most."""
    ordered = sorted(kept, key=lambda rank: (-kept[rank], rank))
    for count in range(1, len(ordered) // 2 + 1):
        if sum(kept[rank] for rank in ordered[:count]) >= enough * sum(kept.values()):
            return tuple(sorted(ordered[:count]))
    return (ordered[0],)


def _in_bursts(a: Analysis, rank: int, late: float) -> bool:
    """Late steps follow each other more often than by chance: a rank late in a share p of steps then has 1 / (1 - p) in a row."""
    return a.by_rank(COMM_LATE_RUN_STEPS).get(rank, 0.0) * (1.0 - late) >= _BURST_RATIO_MIN


RULE = rule(
    __name__,
    "Straggler rank",
    check,
    needs=(STEP_TIME_S, COMM_SKEW_S, COMM_LATE_SHARE, COMM_KEPT_WAITING_S),
    thresholds={
        "skew": Threshold(
            0.15, "two sound ranks on one CPU host were a tenth of a step apart; ranks do not share a GPU"
        ),
        "rotating_skew": Threshold(0.25, "on CPUs: ranks that share cores take turns without anything being wrong"),
        "late": Threshold(0.25, "of the steps: a rank under a quota was last in 0.3 to 0.7 of them"),
        "costs": Threshold(
            0.85,
            "of the waiting: one rank's quota, data, compute or stalls caused 0.87 to 1.0 of it, ranks that take turns mostly 0.5 to 0.8",
        ),
    },
    traced=True,
)
