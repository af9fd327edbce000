"""Slow compute on one rank.

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
all ranks then compute as long as they do on average now. So it is at worst if the sizes of the batches are not known, which
is so where no loader of torch delivers them.

False alarms: a thread that waits for a core does not compute more slowly: its run-queue delay is subtracted first. So
is its kernel time: depending on the layout of its heap, malloc may return memory to the system in each step of one rank
but not of another (measured here: 5,800 page faults a step against 3,400, 5 ms of 44). A CPU quota, neighbours on its
cores or a throttled GPU also slow down a rank: they are then the root cause and explain this finding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity
from rn50_advisor.rules.stragglers import apart, batch_sizes, even_batches, last_share, named, since, sure

_SAMPLED_BATCHES_MIN = 5
_SIZE_RATIO_MIN = 1.1  # times as much data: less may be chance
_EXPLAINED_SHARE_MIN = (
    0.5  # of how much slower a rank computes; attention grows faster than its input, fixed costs not at all
)


@dataclass(frozen=True, slots=True)
class _Slow:
    """Ranks that compute slower, with seconds per step. `rank`: the slowest; `usual_s`: of the others."""

    ranks: tuple[int, ...]
    rank: int
    own_s: float
    usual_s: float
    late: float  # share of the steps in which they come last
    after_s: float  # the step if they computed like the others
    even_s: float  # the step if all ranks shared their work evenly
    larger: float | None  # times as much data in their batches, if that is why

    @property
    def more_s(self) -> float:
        return self.own_s - self.usual_s


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    slow, step = _slow(a, t), a.value(STEP_TIME_S)
    level = severity((step - slow.after_s) / step) if slow is not None else None
    if slow is None or level is None:
        return Clear(RULE.id)
    who, s = named(slow.ranks)
    larger_words = f": {'its' if s else 'their'} batches are larger" if slow.larger else ""
    basis = (
        "balanced compute across ranks, with the same total"
        if slow.larger
        else f"{who} compute{s} as fast as the others"
    )
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title=f"Slow compute on {who}" + larger_words,
        severity=level,
        confidence=sure(a, slow.late),
        seconds_per_step=step - slow.after_s,
        scope=Affected(ranks=slow.ranks, since_step=since(a, slow.ranks)),
        evidence=_evidence(a, slow, t),
        fixes=even_batches(a) if slow.larger else _fixes(a, slow, t),
        saving=model.saving(model.at_best(slow.after_s), _worst(a, slow, step), basis),
    )


def _slow(a: Analysis, t: Thresholds) -> _Slow | None:
    step, model = a.value(STEP_TIME_S), model_of(a)
    # waiting for a core and kernel time for memory are not slower computing
    delays, system = a.by_rank(STEP_RUN_DELAY_S), a.by_rank(STEP_SYSTEM_S)
    whole = a.by_rank(STEP_COMPUTE_S)
    compute = {rank: max(0.0, s - delays.get(rank, 0.0) - system.get(rank, 0.0)) for rank, s in whole.items()}
    if len(compute) < 2:
        return None
    ranks, usual = apart(compute, lambda own, rest: own >= t["ratio"] * rest and own - rest >= t["excess"] * step)
    rank = max(ranks, key=lambda r: compute[r])
    own, late = compute[rank], last_share(a, ranks, t["late"])
    # delays and kernel time are read in few steps only: the difference must be there without subtracting them, too
    slower_s = min(own - usual, whole[rank] - median(s for r, s in whole.items() if r not in ranks))
    slower_s -= a.by_rank(COMM_EXCESS_ERROR_S).get(rank, 0.0)
    slower = own >= t["ratio"] * usual and own - usual >= t["part"] * sum(a.excess[rank].values())
    if not slower or slower_s < t["excess"] * step or late < t["late"]:
        return None
    larger, even = _larger(a, ranks, own / usual if usual > 0 else math.inf), mean(compute.values())
    even_s = model.step_if(
        {(r, p): of[p] * even / max(compute[r], 1e-9) for r, of in model.own.items() for p in COMPUTE}
    )
    rest = [of for r, of in model.own.items() if r not in ranks]
    like_others_s = model.step_if({(r, p): median(of[p] for of in rest) for r in ranks for p in COMPUTE})
    return _Slow(ranks, rank, own, usual, late, even_s if larger else like_others_s, even_s, larger)


def _worst(a: Analysis, slow: _Slow, step: float) -> float:
    """The step if a quarter of the difference stays, or if what the rank does in addition has to be done by all."""
    part = slow.after_s + 0.25 * (step - slow.after_s)
    return part if slow.larger or _knows_batches(a) else max(part, min(step, slow.even_s))


def _knows_batches(a: Analysis) -> bool:
    return len(batch_sizes(a)) == len(model_of(a).own)


def _evidence(a: Analysis, slow: _Slow, t: Thresholds) -> tuple[Evidence, ...]:
    who, s = named(slow.ranks)
    if slow.larger:
        why = Evidence("batch size", slow.larger, "×", None, f"batch size of {who}, relative to the others")
    else:
        phase = max(COMPUTE, key=lambda p: a.excess[slow.rank][p])
        in_copies = _in_copies(a, slow, t)
        most, more_s = ("copies to the GPU", _copied(a, slow)) if in_copies else (phase, a.excess[slow.rank][phase])
        why = Evidence("phase", most, "", None, f"most of it in its {most}: {duration(more_s)} more than the others")
    return (
        Evidence.of(
            STEP_COMPUTE_S,
            slow.own_s,
            t["ratio"] * slow.usual_s,
            f"rank {slow.rank} computes {duration(slow.own_s)} in each step, the others {duration(slow.usual_s)}",
        ),
        Evidence.of(COMM_LATE_SHARE, slow.late, t["late"], f"{who} arrive{s} last at the all-reduce"),
        why,
    )


def _fixes(a: Analysis, slow: _Slow, t: Thresholds) -> tuple[Fix, ...]:
    if _in_copies(a, slow, t):
        return (
            Fix(
                f"find what slows the copies of rank {slow.rank}",
                "its GPU's link (GPU006), memory that is not pinned (H2D001), cores far from its GPU (CPU004)",
                None,
                "small change",
            ),
        )
    compare = "" if _knows_batches(a) else "compare the sizes of its batches with those of the others first"
    title = f"find what rank {slow.rank} computes in addition, or what slows its CPU or GPU"
    find = Fix(title, compare, None, "small change")
    if not a.on_gpu and len(a.nodes) <= 1:
        return (find,)
    elsewhere = "on another GPU or host" if a.on_gpu else "on another host"
    return find, Fix(f"retest {named(slow.ranks)[0]} {elsewhere}", "", None, "outside the code")


def _in_copies(a: Analysis, slow: _Slow, t: Thresholds) -> bool:
    return _copied(a, slow) >= t["part"] * slow.more_s


def _copied(a: Analysis, slow: _Slow) -> float:
    """Host seconds in copies to the GPU beyond those of the other ranks."""
    kinds = [a.by_rank(measure) for measure in (COPY_PAGEABLE_S, COPY_BLOCKING_S)]
    seconds = {rank: sum(kind.get(rank, 0.0) for kind in kinds) for rank in a.by_rank(STEP_COMPUTE_S)}
    return seconds[slow.rank] - median(s for r, s in seconds.items() if r not in slow.ranks)


def _larger(a: Analysis, ranks: tuple[int, ...], slower: float) -> float | None:
    """Size of these ranks' batches relative to the others'; None unless that explains most of their slower computation."""
    sizes = batch_sizes(a)
    own = [sizes[r].mean_bytes for r in ranks if r in sizes]
    others = [size.mean_bytes for r, size in sizes.items() if r not in ranks]
    if not own or not others:
        return None
    ratio, sampled = mean(own) / median(others), min(size.looks for size in sizes.values())
    error = max(size.scatter for size in sizes.values()) * math.sqrt(2.0 / sampled)
    explains = ratio - 1.0 >= _EXPLAINED_SHARE_MIN * (slower - 1.0)
    return ratio if explains and sampled >= _SAMPLED_BATCHES_MIN and ratio - 2.0 * error >= _SIZE_RATIO_MIN else None


RULE = rule(
    __name__,
    "Slow compute on one rank",
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
    traced=True,
)
