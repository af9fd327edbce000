"""One rank is short of data.

What it does: finds a rank that waits for its input clearly longer than the others and keeps them waiting at the gradient all-reduce.

Why it is slow: the step of a data-parallel job is as long as its slowest rank. The others show up as slow "backward" or communication;
they only wait.

Evidence: this rank's input wait against the median of the others; share of steps in which it arrives last; the time to make its batches,
how much of it is blocked, and what is read from a device for one, beside the others'.
Several ranks that are as short (those of one host, of one mount) are named together.

Fix: by what its batches take longer in. Blocked on reads: the mount that its data lies on, where that is known. Blocked without reads: the
server or the lock that its samples wait for. Computing: its shard and the size of its samples. In line for a core: its NUMA node.

Estimate: this rank's input wait brought to the median of the others, in a step no shorter than the others' workers take for a batch.

False alarms: trouble that all ranks share (storage, cores): where the others wait for input too, the rank must be slower at making
batches, not only unlucky. Of ranks in step, the one that comes last each time has no wait in which its workers could catch up:
what the others would wait counts, were they not kept waiting.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Effort, Evidence, Finding, Fix
from rn50_advisor.advisor.model.statistics import others_median
from rn50_advisor.advisor.model.wording.quantities import amount
from rn50_advisor.rules.analysis_reading import model_of, step_without, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.data_loading.input_starvation import batch_every_s, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity
from rn50_advisor.rules.storage.storage_starvation import STARVED
from rn50_advisor.rules.stragglers import apart, last_share, named, since, slows_the_wire, sure


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
    return Finding(
        rule=RULE.id,
        title=f"{who.capitalize()} {'is' if s else 'are'} short of data and keep{s} the others waiting",
        severity=level,
        confidence=sure(a, late),
        seconds_per_step=lost,
        explains=slows_the_wire(a, lost),
        scope=Affected(ranks=ranks, since_step=since(a, ranks)),
        evidence=(*evidence, *_making(a, rank)),
        fixes=(_fix(a, rank, who),),
        saving=model.saving(
            model.at_best(after), after + 0.25 * (step - after), f"{who} wait{s} for input as long as the others"
        ),
    )


def _making(a: Analysis, rank: int) -> list[Evidence]:
    """How this rank makes its batches, beside the others."""
    told = (
        ("fetch.wall_s", "s", "to make a batch on rank {0}; {1} on the others"),
        ("fetch.blocked_share", "", "of it is neither computing nor waiting for a core; {1} on the others"),
        ("fetch.read_mb", "MB", "read from a device for a batch of rank {0}; {1} on the others"),
    )
    found = []
    for name, unit, note in told:
        values = a.by_rank(name)
        if rank in values and len(values) > 1:
            theirs = others_median(values, rank)
            found.append(Evidence(name, values[rank], unit, theirs, note.format(rank, amount(theirs, unit, name))))
    return found


def _fix(a: Analysis, rank: int, who: str) -> Fix:
    """What to change, by what a batch of this rank takes longer in than one of the others."""
    longer, place = _longer_in(a, rank), _place(a, rank)
    most, on = max(longer, key=lambda part: longer[part], default=""), f" on {place}" if place else ""
    effort: Effort = "small change"
    title, change = f"look at the data of {who}{on}: mount, shard, sample sizes, workers", ""
    if most == "blocked" and _reads(a, rank):
        title, change, effort = _faster_reads(a, rank, who), "or a copy on a local disk", "outside the code"
    elif most == "blocked":
        title, change = f"find what the samples of {who}{on} wait for", "a server, a lock, a mount that counts no reads"
    elif most == "cpu":
        title, change = f"give {who} samples that cost no more than the others'", "its shard, the size of its pictures"
    elif most == "delay":
        title, change, effort = (
            f"give the loading of {who} cores of its own",
            "numactl, --cpus-per-task",
            "outside the code",
        )
    told = "; ".join(filter(None, (change, _node(a, rank))))
    return Fix(title, told, where_of(a.training_loader(rank)), effort)


def _faster_reads(a: Analysis, rank: int, who: str) -> str:
    place, theirs = _place(a, rank), {_place(a, other) for other in a.by_rank("step.input_wait_s")}
    if not place:
        return f"let {who} read from what answers as fast as the others' data"
    if theirs <= {place, ""}:
        return f"make {place} answer {who} as fast as the others"
    return f"move the data of {who} from {place} to {' or '.join(sorted(theirs - {place, ''}))}, where the others read"


def _longer_in(a: Analysis, rank: int) -> dict[str, float]:
    """By what a batch is made of, how much longer one of this rank takes in it than one of the others."""
    walls, found = a.by_rank("fetch.wall_s"), {}
    for part in ("blocked", "cpu", "delay"):
        spent = {r: share * walls[r] for r, share in a.by_rank(f"fetch.{part}_share").items() if r in walls}
        if rank in spent and len(spent) > 1:
            found[part] = spent[rank] - others_median(spent, rank)
    return found


def _reads(a: Analysis, rank: int) -> bool:
    samples = max(1.0, (a.get("step.samples") or 1.0) / max(1.0, a.get("step.batches", rank) or 1.0))
    read = 1e6 * (a.get("fetch.read_mb", rank) or 0.0) / samples >= STARVED["bytes_per_sample"].value
    return read or bool(a.get("data.network_mount", rank))


def _place(a: Analysis, rank: int) -> str:
    """What this rank's data set lies on, as it says: `/data (ext4 on sda)`; empty where it says nothing."""
    loader = a.training_loader(rank)
    mount = (loader.mount if loader else None) or {}
    on = f" from {mount.get('device')}" if mount.get("network") else f" on {mount['disk']}" if mount.get("disk") else ""
    return f"{mount['mount_point']} ({mount.get('fs_type')}{on})" if mount.get("mount_point") else ""


def _node(a: Analysis, rank: int) -> str:
    """Where its CPUs all lie on one of several NUMA nodes."""
    nodes = {name: set(cpus) for name, cpus in (a.meta.environment.get("numa_nodes") or {}).items() if cpus}
    allowed = set(facts_of(a, rank).get("cpus_allowed") or ())
    own = [name for name, cpus in nodes.items() if allowed and allowed <= cpus]
    return f"its CPUs are those of NUMA node {own[0]}" if own and len(nodes) > 1 else ""


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
