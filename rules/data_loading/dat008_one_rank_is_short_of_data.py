"""Data loading: one rank short of data.

What it does: finds a rank that waits for its input clearly longer than the others and keeps them waiting at the
gradient all-reduce.

Fires when: its input wait exceeds the others' by ≥ 10 % of the step and it arrives last; if all ranks wait, it must also make its
batches slower.

Why it is slow: a data-parallel step takes as long as its slowest rank. The other ranks appear to have a slow "backward"
or slow communication, but they only wait.

Evidence: this rank's input wait against the median of the others; the share of steps in which it arrives last; the time
to make its batches, how much of it is blocked, and the bytes read from a device per batch, compared with the other
ranks. Several ranks that are equally short of data (those of one host or one mount) are named together.

Fix: depends on where its batches lose time. Blocked on reads: the mount that holds its data, if known. Blocked
without reads: the server or lock that its samples wait for. Computing: its shard and the size of its samples. Waiting
for a core: its NUMA node.

Estimate: this rank's input wait drops to the median of the others. The step does not become shorter than the time that
the other ranks' workers need for a batch.

False alarms: problems that all ranks share (storage, cores): if the others wait for input too, the rank must be slower
at making batches, not only unlucky. In lockstep training, the last rank never waits for others and so gives its workers
no time to catch up; therefore the other ranks count with the input wait they would have if they did not wait for it.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Effort, Evidence, Finding, Fix, NoteForm
from rn50_advisor.advisor.model.measures.comm_measures import COMM_LATE_SHARE
from rn50_advisor.advisor.model.measures.input_measures import (
    DATA_NETWORK_MOUNT,
    FETCH_BLOCKED_SHARE,
    FETCH_CPU_SHARE,
    FETCH_DELAY_SHARE,
    FETCH_READ_MB,
    FETCH_WALL_S,
)
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_INPUT_WAIT_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.statistics import others_median
from rn50_advisor.advisor.model.wording.quantities import amount, duration
from rn50_advisor.probes.documents.rank_documents import MountFacts
from rn50_advisor.rules.analysis_reading import model_of, step_without, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.data_loading.input_starvation import batch_every_s, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, rule, severity
from rn50_advisor.rules.storage.storage_starvation import STARVED
from rn50_advisor.rules.stragglers import apart, last_share, named, since, sure


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits = input_waits(a)
    if len(waits) < 2:
        return Clear(RULE.id)
    step, model = a.value(STEP_TIME_S), model_of(a)
    ranks, usual = apart(waits, lambda own, rest: own - rest >= t["excess"] * step)
    rank = max(ranks, key=lambda r: waits[r])
    excess, late = waits[rank] - usual, last_share(a, ranks, t["late"])
    every_s = batch_every_s(a)
    others_s = others_median(every_s, rank) if rank in every_s and len(every_s) > 1 else 0.0
    after = max(step_without(a, "input_wait", {r: waits[r] - usual for r in ranks}), min(step, others_s))
    lost = step - after
    level = severity(lost / step)
    if usual >= t["excess"] * step and others_s > 0 and every_s[rank] < t["slower"] * others_s:
        return Clear(RULE.id)  # all ranks are short of data, and this one makes its batches as fast as the others
    if others_s > (1.0 - t["excess"]) * step:
        return Clear(RULE.id)  # the others are fed in time because they wait: their batches take as long as the step
    if excess < t["excess"] * step or late < t["late"] or level is None:
        return Clear(RULE.id)
    who, s = named(ranks)
    evidence = [
        Evidence.of(
            STEP_INPUT_WAIT_S,
            waits[rank],
            usual + t["excess"] * step,
            f"rank {rank} waits {duration(waits[rank])} for input in each step, the others {duration(usual)}",
        ),
        Evidence.of(COMM_LATE_SHARE, late, t["late"], f"{who} arrive{s} last at the all-reduce"),
    ]
    return Finding(
        rule=RULE.id,
        title=f"Data loading: {who} short of data",
        severity=level,
        confidence=sure(a, late),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks, since_step=since(a, ranks)),
        evidence=(*evidence, *_making(a, rank)),
        fixes=(_fix(a, rank, who),),
        saving=model.saving(
            model.at_best(after), after + 0.25 * (step - after), f"{who} wait{s} for input as long as the others"
        ),
    )


def _making(a: Analysis, rank: int) -> list[Evidence]:
    """Evidence on how this rank makes its batches, compared with the others."""
    parts: tuple[tuple[RankMeasure, str, NoteForm], ...] = (
        (FETCH_WALL_S, "to make a batch on rank {0}; {1} on the others", "explains"),
        (FETCH_BLOCKED_SHARE, "of the time of rank {0}; {1} on the others", "explains"),
        (FETCH_READ_MB, "from a device on rank {0}; {1} on the others", "explains"),
    )
    found = []
    for measure, text, form in parts:
        values = a.by_rank(measure)
        if rank in values and len(values) > 1:
            usual = others_median(values, rank)
            note = text.format(rank, amount(usual, measure.unit, measure))
            found.append(Evidence.of(measure, values[rank], usual, note, form=form))
    return found


def _fix(a: Analysis, rank: int, who: str) -> Fix:
    """The fix for the part of making a batch in which this rank is slower than the others."""
    longer, place = _longer_in(a, rank), _place(a, rank)
    most, on = max(longer, key=lambda part: longer[part], default=""), f" on {place}" if place else ""
    effort: Effort = "small change"
    title, change = f"check the data of {who}{on}: mount, shard, sample sizes, workers", ""
    if most == "blocked" and _reads(a, rank):
        title, change, effort = _faster_reads(a, rank, who), "or a copy on a local disk", "outside the code"
    elif most == "blocked":
        title, change = (
            f"find what loading of {who}{on} waits for",
            "a server, a lock, a mount that does not report reads",
        )
    elif most == "cpu":
        title, change = (
            f"balance the cost of samples between {who} and the other ranks",
            "its shard, the size of its images",
        )
    elif most == "delay":
        title, change, effort = (
            f"give the loader of {who} dedicated cores",
            "numactl, --cpus-per-task",
            "outside the code",
        )
    details = "; ".join(filter(None, (change, _node(a, rank))))
    return Fix(title, details, where_of(a.training_loader(rank)), effort)


def _faster_reads(a: Analysis, rank: int, who: str) -> str:
    place, places = _place(a, rank), {_place(a, other) for other in a.by_rank(STEP_INPUT_WAIT_S)}
    if not place:
        return f"put the data of {who} on storage as fast as that of the others"
    if places <= {place, ""}:
        return f"make {place} as fast for {who} as for the others"
    return f"move the data of {who} from {place} to {' or '.join(sorted(places - {place, ''}))}, where the others read"


def _longer_in(a: Analysis, rank: int) -> dict[str, float]:
    """Extra time of this rank over the others, for each part of making a batch."""
    walls, found = a.by_rank(FETCH_WALL_S), {}
    parts = {"blocked": FETCH_BLOCKED_SHARE, "cpu": FETCH_CPU_SHARE, "delay": FETCH_DELAY_SHARE}
    for part, measure in parts.items():
        spent = {r: share * walls[r] for r, share in a.by_rank(measure).items() if r in walls}
        if rank in spent and len(spent) > 1:
            found[part] = spent[rank] - others_median(spent, rank)
    return found


def _reads(a: Analysis, rank: int) -> bool:
    samples = max(1.0, (a.get(STEP_SAMPLES) or 1.0) / max(1.0, a.get(STEP_BATCHES, rank) or 1.0))
    read = 1e6 * (a.get(FETCH_READ_MB, rank) or 0.0) / samples >= STARVED["bytes_per_sample"].value
    return read or bool(a.get(DATA_NETWORK_MOUNT, rank))


def _place(a: Analysis, rank: int) -> str:
    """The storage of this rank's data set, as far as it is known: `/data (ext4 on sda)`, else empty."""
    loader = a.training_loader(rank)
    mount = (loader.mount if loader else None) or MountFacts()
    on = f" from {mount.get('device')}" if mount.get("network") else f" on {mount['disk']}" if mount.get("disk") else ""
    return f"{mount['mount_point']} ({mount.get('fs_type')}{on})" if mount.get("mount_point") else ""


def _node(a: Analysis, rank: int) -> str:
    """The NUMA node of its CPUs, if all of them are on one of several."""
    nodes = {name: set(cpus) for name, cpus in a.meta.environment.get("numa_nodes", {}).items() if cpus}
    allowed = set(facts_of(a, rank).get("cpus_allowed") or ())
    own = [name for name, cpus in nodes.items() if allowed and allowed <= cpus]
    return f"its CPUs are those of NUMA node {own[0]}" if own and len(nodes) > 1 else ""


RULE = rule(
    __name__,
    "Data loading: one rank short of data",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, COMM_LATE_SHARE),
    thresholds={
        "excess": Threshold(0.10, "of the step: ranks differ by a tenth by chance"),
        "slower": Threshold(1.1, "two ranks with equal work made batches in times 1.06 apart on crowded cores"),
        "late": Threshold(0.5, "the slow rank comes last in most steps; by chance, ranks take turns"),
    },
    traced=True,
)
