"""Ranks wait for a straggler.

What it does: finds ranks that reach the gradient all-reduce well before the last one does, and names the late rank and its phase.

Why it is slow: the all-reduce ends for nobody before the last rank has joined.

Evidence: how much earlier the others are done, as a share of the step; who comes last, how often (most of the time, or in bursts), in
which phase it loses the time, and whether collections, a quota or waiting for a core stop it there; since which step, if not the first.

Fix: whatever makes the late rank late; where a rule names that, this finding is listed under it. Ranks that take turns in being late
point at uneven samples, garbage collection or neighbours.

Estimate: the skew, brought to nothing.

False alarms: what the kernel does for this rank's memory beyond the others' in forward and backward is taken off (see CMP007): it changes
from start to start of the same job. A rank that is late only while it evaluates or writes a checkpoint for all (LOP001, LOP003 explain it).
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.report import PHASE_TITLES
from rn50_advisor.advisor.model.statistics import others_median
from rn50_advisor.rules.analysis_reading import luck_of_the_heap, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import named, since, sure

_TELLING = 0.3  # of the skew
_MOSTLY = 0.6  # of the steps
_BURSTY = 2.0  # times as many steps in a row as by chance


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    skew, step, late = a.value("comm.skew_s"), a.value("step.time_s"), a.by_rank("comm.late_share")
    kept = a.by_rank("comm.kept_waiting_s")
    ranks = _who(kept, t["costs"])
    rank = max(ranks, key=lambda r: kept[r])
    share = sum(late[r] for r in ranks)
    # not how often: a rank that a quota holds back in bursts is late in some steps only, but then it is it that costs the time
    costs = sum(kept[r] for r in ranks) / skew if skew > 0 else 0.0
    persistent = costs >= t["costs"] and (share >= t["late"] or bool(_held_up(a, rank, skew)))
    if persistent:
        skew -= luck_of_the_heap(a, rank)
    level = severity(skew / step)
    line = t["skew"] if persistent else t["rotating_skew"]
    if skew < line * step or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    evidence = [Evidence("comm.skew_s", skew, "s", line * step, f"{100 * skew / step:.0f} % of the step")]
    if persistent:
        phase = max(a.excess[rank], key=lambda p: a.excess[rank][p])
        who, s = named(ranks)
        bursts = ", in bursts" if share < _MOSTLY and _in_bursts(a, rank, late[rank]) else ""
        note = f"{who} come{s} last{bursts}: {100 * costs:.0f} % of the waiting is for {'it' if s else 'them'}"
        evidence.append(Evidence("comm.late_share", share, "", t["late"], note))
        evidence.append(Evidence("phase", phase, "", None, f"rank {rank} loses the time in: {PHASE_TITLES[phase]}"))
        evidence += _held_up(a, rank, skew)
        title, fix = (
            f"The other ranks wait for {who}",
            f"find what {who} do{'es' if s else ''} longer: {PHASE_TITLES[phase]}",
        )
    else:
        evidence.append(
            Evidence(
                "comm.late_share", late[rank], "", t["late"], "no rank comes last most of the time: they take turns"
            )
        )
        title, fix = (
            "Ranks take turns in keeping each other waiting",
            "even out the work per step: sample sizes, garbage collection, neighbours",
        )
    after = max(step - skew, 1e-9)
    return Finding(
        rule=RULE.id,
        title=title,
        severity=level,
        confidence=sure(a, costs) if persistent else confidence(a, cap=0.7),
        seconds_per_step=skew,
        scope=Affected(ranks=ranks, since_step=since(a, ranks)) if persistent else Affected(),
        evidence=tuple(evidence),
        fixes=(Fix(fix, "", None, "small change"),),
        saving=model.saving(after, after + 0.5 * skew, "ranks that arrive together"),
    )


def _held_up(a: Analysis, rank: int, skew: float) -> list[Evidence]:
    """What stops a rank in the middle of any phase, where this one has so much more of it than the others that it tells."""
    step = a.value("step.time_s")
    throttled = {r: share * step for r, share in a.by_rank("quota.throttled_s_per_s").items()}
    found = []
    for name, seconds, what in (
        ("step.gc_s", a.by_rank("step.gc_s"), "garbage collections"),
        ("quota.throttled_s_per_s", throttled, "held back by its CPU quota"),
        ("step.run_delay_s", a.by_rank("step.run_delay_s"), "waiting for a core"),
    ):
        more = seconds[rank] - others_median(seconds, rank) if rank in seconds and len(seconds) > 1 else 0.0
        if name.startswith("quota") and len(seconds) == 1:
            more = seconds.get(rank, 0.0)  # the others have no quota
        if more >= _TELLING * skew:
            found.append(Evidence(name, more, "s", None, f"{what}: {1000 * more:.3g} ms a step more than the others"))
    return found


def _who(kept: Mapping[int, float], enough: float) -> tuple[int, ...]:
    """The fewest ranks, half of them at most, that cause so much of the waiting; without such, the one that causes the most."""
    ordered = sorted(kept, key=lambda rank: (-kept[rank], rank))
    for count in range(1, len(ordered) // 2 + 1):
        if sum(kept[rank] for rank in ordered[:count]) >= enough * sum(kept.values()):
            return tuple(sorted(ordered[:count]))
    return (ordered[0],)


def _in_bursts(a: Analysis, rank: int, late: float) -> bool:
    """Late steps follow each other more than chance has them do: a rank late in the share p has them 1 / (1 - p) in a row."""
    return a.by_rank("comm.late_run_steps").get(rank, 0.0) * (1.0 - late) >= _BURSTY


RULE = rule(
    __name__,
    "ranks wait for a straggler",
    check,
    needs=("step.time_s", "comm.skew_s", "comm.late_share", "comm.kept_waiting_s"),
    thresholds={
        "skew": Threshold(0.15, "two sound ranks on one CPU host were seen a tenth of a step apart"),
        "rotating_skew": Threshold(0.25, "ranks that share cores take turns without anything being wrong"),
        "late": Threshold(0.25, "of the steps: a rank under a quota was the last in 0.3 to 0.7 of them"),
        "costs": Threshold(
            0.85,
            "of the waiting: one rank's quota, data, compute or stalls caused 0.87 to 1.0 of it, ranks that take turns mostly 0.5 to 0.8",
        ),
    },
)
