"""One rank is short of data.

What it does: finds a rank that waits for its input clearly longer than the others and keeps them waiting at the gradient all-reduce.

Why it is slow: the step of a data-parallel job is as long as its slowest rank. The others show up as slow "backward" or communication;
they only wait.

Evidence: this rank's input wait against the median of the others; share of steps in which it arrives last; the time to make its batches.
Several ranks that are as short (those of one host, of one mount) are named together.

Fix: look at that rank's data: its mount, its shard, the size of its samples, its NUMA node, its workers.

Estimate: this rank's input wait brought to the median of the others, in a step no shorter than the others' workers take for a batch.

False alarms: trouble that all ranks share (storage, cores): where the others wait for input too, the rank must be slower at making
batches, not only unlucky. Of ranks in step, the one that comes last each time has no wait in which its workers could catch up:
what the others would wait counts, were they not kept waiting.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix
from advisor.core.stats import others_median
from rules.hunger import batch_every_s, input_waits
from rules.reading import model_of, step_without, where_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity
from rules.stragglers import apart, last_share, named, slows_the_wire


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits = input_waits(a)
    if len(waits) < 2:
        return Clear(RULE.id)
    step, model = a.value("step.time_s"), model_of(a)
    ranks, usual = apart(waits, lambda own, rest: own - rest >= t["excess"] * step)
    rank = max(ranks, key=lambda r: waits[r])
    excess, late = waits[rank] - usual, last_share(a, ranks, t["late"])
    every_s = batch_every_s(a)
    theirs_s = others_median(every_s, rank) if rank in every_s and len(every_s) > 1 else 0.0
    after = max(step_without(a, "input_wait", {r: waits[r] - usual for r in ranks}), min(step, theirs_s))
    lost = step - after
    level = severity(lost / step)
    if usual >= t["excess"] * step and theirs_s > 0 and every_s[rank] < t["slower"] * theirs_s:
        return Clear(RULE.id)  # all are short of data, and who waits longer makes its batches as fast as the others do
    if theirs_s > (1.0 - t["excess"]) * step:
        return Clear(RULE.id)  # the others are fed in time because they wait: their batches take as long as the step
    if excess < t["excess"] * step or late < t["late"] or level is None:
        return Clear(RULE.id)
    loader, walls = a.training_loader(rank), a.by_rank("fetch.wall_s")
    who, s = named(ranks)
    evidence = [
        Evidence(
            "step.input_wait_s",
            waits[rank],
            "s",
            usual + t["excess"] * step,
            f"rank {rank} waits {1000 * waits[rank]:.0f} ms for input in each step, the others {1000 * usual:.0f} ms",
        ),
        Evidence("comm.late_share", late, "", t["late"], f"{who} arrive{s} last at the all-reduce"),
    ]
    if rank in walls and len(walls) > 1:
        theirs_s = others_median(walls, rank)
        note = f"to make a batch on rank {rank}; {1000 * theirs_s:.0f} ms on the others"
        evidence.append(Evidence("fetch.wall_s", walls[rank], "s", theirs_s, note))
    return Finding(
        rule=RULE.id,
        title=f"{who.capitalize()} {'is' if s else 'are'} short of data and keep{s} the others waiting",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        explains=slows_the_wire(a, lost),
        scope=Affected(ranks=ranks),
        evidence=tuple(evidence),
        fixes=(
            Fix(
                f"look at the data of {who}: mount, shard, sample sizes, workers", "", where_of(loader), "small change"
            ),
        ),
        saving=model.saving(
            model.at_best(after), after + 0.25 * (step - after), f"{who} wait{s} for input as long as the others"
        ),
    )


RULE = rule(
    __name__,
    "one rank is short of data",
    check,
    needs=("step.time_s", "step.input_wait_s", "comm.late_share"),
    explains=("COM002",),
    thresholds={
        "excess": Threshold(0.10, "below a tenth of the step, chance differs as much between ranks"),
        "slower": Threshold(1.1, "two ranks with equal work made batches in times 1.06 apart on crowded cores"),
        "late": Threshold(0.5, "a culprit comes last in most steps; chance changes sides"),
    },
)
