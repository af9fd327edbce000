"""One rank computes slower.

What it does: finds a rank whose forward, backward (without communication) and optimizer take clearly longer than the others' while it
arrives last at the gradient all-reduce.

Why it is slow: every step waits for this rank. Its own communication is the shortest of all; the others' is long because they wait.

Evidence: own compute of this rank against the median of the others, and in which phase, or in what copies to its GPU, most of the
difference lies; share of steps in which it arrives last. Several ranks that are as slow (those of a bad host) are named together: none of
them is always the last, but nearly all of the waiting is for them.

Fix: retest the rank on another GPU or host, balance the sizes of its samples, look for extra work that only it does.

Estimate: this rank's compute brought to the median of the others.

False alarms: a thread that waits for a core computes no slower: its run-queue delay is taken off first. So is its time in the kernel: by
chance of its heap's layout, malloc may give memory back to the system in each step of one rank and not of its twin (seen here: 5,800 page
faults a step against 3,400, 5 ms of 44). A CPU quota, neighbours on its
cores or a throttled GPU slow a rank down too: they are then the root cause and explain this.
"""

from __future__ import annotations

from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity
from rn50_advisor.rules.stragglers import apart, last_share, named, since, slows_the_wire, sure


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    step, model = a.value("step.time_s"), model_of(a)
    # what a thread waits for a core, or has the kernel do for its memory, is no slower computing
    delays, system = a.by_rank("step.run_delay_s"), a.by_rank("step.system_s")
    compute = {
        rank: max(0.0, s - delays.get(rank, 0.0) - system.get(rank, 0.0))
        for rank, s in a.by_rank("step.compute_s").items()
    }
    if len(compute) < 2:
        return Clear(RULE.id)
    ranks, usual = apart(compute, lambda own, rest: own >= t["ratio"] * rest and own - rest >= t["excess"] * step)
    rank = max(ranks, key=lambda r: compute[r])
    rest = [own for r, own in model.own.items() if r not in ranks]
    after = model.step_if({(r, p): median(own[p] for own in rest) for r in ranks for p in COMPUTE})
    late = last_share(a, ranks, t["late"])
    level = severity((step - after) / step)
    excess = sum(a.excess[rank].values())
    slower = compute[rank] >= t["ratio"] * usual and compute[rank] - usual >= t["part"] * excess
    if not slower or compute[rank] - usual < t["excess"] * step or late < t["late"] or level is None:
        return Clear(RULE.id)
    who, s = named(ranks)
    copied = _beyond(_copies(a), ranks, rank)
    in_copies = copied >= t["part"] * (compute[rank] - usual)
    phase = max(COMPUTE, key=lambda p: a.excess[rank][p])
    most, more_s = ("copies to the GPU", copied) if in_copies else (phase, a.excess[rank][phase])
    return Finding(
        rule=RULE.id,
        title=f"{who.capitalize()} compute{s} slower than the others",
        severity=level,
        confidence=sure(a, late),
        seconds_per_step=step - after,
        explains=slows_the_wire(a, step - after),
        scope=Affected(ranks=ranks, since_step=since(a, ranks)),
        evidence=(
            Evidence(
                "step.compute_s",
                compute[rank],
                "s",
                t["ratio"] * usual,
                f"rank {rank} computes {1000 * compute[rank]:.0f} ms in each step, the others {1000 * usual:.0f} ms",
            ),
            Evidence("comm.late_share", late, "", t["late"], f"{who} arrive{s} last at the all-reduce"),
            Evidence("phase", most, "", None, f"most of it in its {most}: {1000 * more_s:.0f} ms more than the others"),
        ),
        fixes=(
            Fix(
                f"find what slows the copies of rank {rank}",
                "its GPU's link (GPU006), memory that is not pinned (H2D001), cores far from its GPU (CPU004)",
                None,
                "small change",
            )
            if in_copies
            else Fix(f"find what rank {rank} does more, or what holds its processor back", "", None, "small change"),
            Fix(f"retest {who} on another GPU or host", "", None, "outside the code"),
        ),
        saving=model.saving(
            model.at_best(after), after + 0.25 * (step - after), f"{who} compute{s} as fast as the others"
        ),
    )


def _copies(a: Analysis) -> dict[int, float]:
    """Seconds of each rank's host in copies to its GPU."""
    kinds = [a.by_rank(f"copy.{kind}_s") for kind in ("pageable", "blocking")]
    return {rank: sum(kind.get(rank, 0.0) for kind in kinds) for rank in a.by_rank("step.compute_s")}


def _beyond(seconds: dict[int, float], ranks: tuple[int, ...], rank: int) -> float:
    return seconds[rank] - median(s for r, s in seconds.items() if r not in ranks)


RULE = rule(
    __name__,
    "one rank computes slower",
    check,
    needs=("step.time_s", "step.compute_s", "comm.late_share"),
    explains=("COM002",),
    thresholds={
        "ratio": Threshold(
            1.20, "two sound ranks on one CPU host were seen to differ by up to 1.10, by 1.18 beside a busy neighbour"
        ),
        "excess": Threshold(
            0.05, "of the step: a rank that computes little may differ by more than a tenth and cost nothing"
        ),
        "part": Threshold(
            0.5, "most of what this rank takes beyond the others: otherwise compute is not what makes it late"
        ),
        "late": Threshold(0.5, "a culprit comes last in most steps; chance changes sides"),
    },
)
