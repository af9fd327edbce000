"""Who owns the time of a step: own work of each rank, the wire, and waiting for the rank that comes last.

Ranks of a DDP job leave the gradient all-reduce together. So a rank's *turn* runs from one such moment to the next: what follows the
backward of step n-1 (clipping, optimizer, gap), then input, forward and backward of step n up to its last gradient. The rank with the
longest turn is the one the others wait for; what its own all-reduce still takes after that is the wire. (DDP stamps both ends of each
sampled backward; with rank 1 made 100 ms late, its bucket took 5 ms and rank 0's 94-106 ms.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.analysis.collectives import held
from advisor.analysis.steady import RankSteps
from advisor.core.recording import Recording, Table
from advisor.core.report import Budget
from advisor.core.stats import relative_error

Array = NDArray[np.float64]

OWN_PHASES = ("input_wait", "forward", "backward", "optimizer", "gap.evaluation", "gap.checkpoint", "gap")
_AFTER_BACKWARD = ("optimizer", "gap.evaluation", "gap.checkpoint", "gap")
# A rank is clearly the last when its turn exceeds every other's by this share of the step: below it, chance decides.
_CLEAR_MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class Account:
    """Seconds per step over the steady steps. `own` holds the phases without waiting for others."""

    step_s: float
    own: Mapping[int, Mapping[str, float]]
    exposed: Mapping[int, float]
    wire_s: float | None  # None: nothing stamped the communication
    skew_s: float
    late_share: Mapping[int, float]
    kept_waiting_s: Mapping[int, float]  # by rank, of the skew what it causes: they sum to `skew_s`
    budget: Budget
    sampled_steps: int
    wire_error: float = 0.0  # two standard errors of `wire_s`, relative
    span_s: float | None = None  # of the exchange, what backward hides included
    # by rank, of the steps that all ranks have: row numbers, and seconds of each turn; empty where ranks cannot be laid side by side
    rows: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    turns: Mapping[int, Array] = field(default_factory=dict)


def phases_of(steps: RankSteps, gpu: Table | None) -> dict[str, Array]:
    """Per row, the seconds of each phase. The GPU's own times replace the host's where events were read for most steps."""
    c = steps.columns
    host = {
        "input_wait": c["input_wait"],
        "forward": c["forward"],
        "backward": c["backward"],
        "optimizer": c["optimizer"] + c["clip"],
        "gap.evaluation": c["evaluation"],
        "gap.checkpoint": c["checkpoint"],
        "gap": c["gap"],
    }
    if gpu is None or gpu.size < 0.5 * steps.step.size:
        return host
    return _on_gpu(steps, gpu, host)


def _on_gpu(steps: RankSteps, gpu: Table, host: dict[str, Array]) -> dict[str, Array]:
    """The stream's times, scaled to the host's length of the row: kernels of one step may run while the host is in the next."""
    order = np.argsort(gpu["step"])
    at = np.clip(np.searchsorted(gpu["step"][order], steps.step), 0, gpu.size - 1)
    row = gpu[order][at]
    seen = (row["step"] == steps.step) & (steps.count == 1)
    on_gpu = {name: row[f"{name}_ns"] / 1e9 for name in ("input_wait", "forward", "backward", "optimizer", "gap")}
    aside = host["gap.evaluation"] + host["gap.checkpoint"]
    on_gpu["gap"] = np.maximum(0.0, on_gpu["gap"] - aside)
    total = sum(on_gpu.values())
    scale = np.where(total > 0, (steps.length - aside) / np.maximum(total, 1e-12), 1.0)
    # the whole of a long stretch telescopes to the host's; a single step may differ by the queue's depth, hence the bounds
    scale = np.clip(scale, 0.5, 2.0)
    return {
        name: np.where(seen, on_gpu[name] * scale, values) if name in on_gpu else values
        for name, values in host.items()
    }


def exposed_comm(steps: RankSteps, comm: Table | None, backward: Array) -> tuple[Array, NDArray[np.bool_]] | None:
    """(exposed communication per row, which rows were stamped); None where DDP stamped nothing.

    Stamped: end of communication minus end of computation. Unstamped: what the backward takes beyond the usual own backward.
    """
    if comm is None or comm.size == 0:
        return None
    order = np.argsort(comm["step"])
    table = comm[order]
    at = np.clip(np.searchsorted(table["step"], steps.step), 0, table.size - 1)
    row = table[at]
    stamped = (row["step"] == steps.step) & (steps.count == 1)
    if not stamped.any():
        return None
    exposed = np.clip((row["comm_end_ns"] - row["compute_end_ns"]) / 1e9, 0.0, backward)
    usual = float(np.median((backward - exposed)[stamped]))
    guessed = np.clip(backward - usual * steps.count, 0.0, None)
    return np.where(stamped, exposed, guessed), stamped


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of one rank: its own phases, and what it waited for in collectives."""

    phases: Mapping[str, Array]
    exposed: Array | None  # None: nobody timed its communication
    stamped: NDArray[np.bool_]


def split(steps: RankSteps, gpu: Table | None, comm: Table | None, called: Table | None) -> Split:
    """`called`: collectives that Python called. On a GPU they are queued, and the stream's own times hold what they take."""
    phases = phases_of(steps, gpu)
    exposed: Array | None = None
    stamped = np.zeros(steps.step.size, np.bool_)
    found = exposed_comm(steps, comm, phases["backward"])
    if found is not None:
        exposed, stamped = found
        phases = {**phases, "backward": phases["backward"] - exposed}
    by_events = gpu is not None and gpu.size >= 0.5 * steps.step.size
    waited = None if by_events else held(steps, called)
    if waited is not None:
        taken = {phase: np.minimum(seconds, phases[phase]) for phase, seconds in waited.items()}
        phases = {**phases, **{phase: phases[phase] - seconds for phase, seconds in taken.items()}}
        total = np.sum(np.stack(list(taken.values())), axis=0)
        if exposed is None:
            stamped = steps.count == 1
        exposed = total if exposed is None else exposed + total
    return Split(phases, exposed, stamped)


def split_of(recording: Recording, steps: RankSteps, *, ranks: int) -> Split:
    """As `split`, of a rank of so many: one alone waits for nobody."""
    rank = steps.rank
    called = recording.collectives.get(rank) if ranks > 1 else None
    return split(steps, recording.gpu_steps.get(rank), recording.comm.get(rank), called)


def account(
    steady: Mapping[int, RankSteps],
    gpu: Mapping[int, Table],
    comm: Mapping[int, Table],
    called: Mapping[int, Table] | None = None,
) -> Account:
    """The account of the steady steps. Raises ValueError when there are none."""
    phases: dict[int, Mapping[str, Array]] = {}
    exposed: dict[int, Array] = {}
    stamps: dict[int, NDArray[np.bool_]] = {}
    for rank, steps in steady.items():
        parts = split(steps, gpu.get(rank), comm.get(rank), (called or {}).get(rank) if len(steady) > 1 else None)
        phases[rank] = parts.phases
        if parts.exposed is not None:
            exposed[rank], stamps[rank] = parts.exposed, parts.stamped
    means = {r: {p: float(v.sum() / steady[r].count.sum()) for p, v in named.items()} for r, named in phases.items()}
    exposed_mean = {rank: float(values.sum() / steady[rank].count.sum()) for rank, values in exposed.items()}
    lengths = {rank: float(steps.length.sum() / steps.count.sum()) for rank, steps in steady.items()}
    step_s = float(np.mean(list(lengths.values())))
    common = _common_rows(steady)
    together = len(steady) > 1 and len(exposed) == len(steady) and min(rows.size for rows in common.values()) > 1
    if not together:
        return _apart(means, exposed_mean, step_s, lengths, stamps)
    made = _together(common, phases, exposed, stamps, (means, exposed_mean, step_s, lengths))
    return replace(made, span_s=_span_s(steady, comm))


def _span_s(steady: Mapping[int, RankSteps], comm: Mapping[int, Table]) -> float | None:
    """Seconds from the first all-reduce of a backward pass to the end of its last, hidden part included; None where DDP stamped nothing.

    Of the rank with the shortest one, as it waits for no other.
    """
    spans = []
    for rank, steps in steady.items():
        table = comm.get(rank)
        if table is not None and table.size:
            rows = table[(table["step"] >= int(steps.step[0])) & (table["step"] <= int(steps.step[-1]))]
            if rows.size:
                spans.append(float(np.median(rows["comm_ns"])) / 1e9)
    return min(spans, default=None)


def _per_rank(
    means: Mapping[int, Mapping[str, float]], exposed: Mapping[int, float], lengths: Mapping[int, float]
) -> dict[int, dict[str, float]]:
    budget = {}
    for rank, named in means.items():
        row = {**named, **({"comm_exposed": exposed[rank]} if rank in exposed else {})}
        row["unattributed"] = max(0.0, lengths[rank] - sum(row.values()))
        budget[rank] = row
    return budget


def _apart(
    means: Mapping[int, dict[str, float]],
    exposed: Mapping[int, float],
    step_s: float,
    lengths: Mapping[int, float],
    stamps: Mapping[int, NDArray[np.bool_]],
) -> Account:
    """One rank, or ranks whose communication nobody stamped: the longest step is the critical one."""
    per_rank = _per_rank(means, exposed, lengths)
    critical = max(lengths, key=lambda rank: lengths[rank])
    wire = exposed.get(critical) if len(means) > 1 else 0.0
    return Account(
        step_s=step_s,
        own=means,
        exposed=exposed,
        wire_s=wire,
        skew_s=0.0,
        late_share={},
        kept_waiting_s={},
        budget=Budget(per_rank[critical], per_rank),
        sampled_steps=min((int(s.sum()) for s in stamps.values()), default=0),
    )


def _together(
    common: Mapping[int, NDArray[np.int64]],
    phases: Mapping[int, Mapping[str, Array]],
    exposed: Mapping[int, Array],
    stamps: Mapping[int, NDArray[np.bool_]],
    totals: tuple[dict[int, dict[str, float]], dict[int, float], float, dict[int, float]],
) -> Account:
    means, exposed_mean, step_s, lengths = totals
    ranks = sorted(common)
    turn = {rank: _turn(phases[rank], common[rank]) for rank in ranks}
    whole = np.stack([sum(turn[rank].values()) for rank in ranks])  # ranks x steps
    left = np.stack([exposed[rank][common[rank]] for rank in ranks])
    last = whole.argmax(axis=0)
    slowest = whole.max(axis=0)
    ordered = np.sort(whole, axis=0)
    margin = ordered[-1] - ordered[-2]
    clear = margin > _CLEAR_MARGIN * step_s
    # the first turn begins with what a step before it left, which is not known
    late = {rank: float(((last == i) & clear)[1:].mean()) for i, rank in enumerate(ranks)}
    # the wire: what the step still waits for after the last rank's last gradient. Of one collective the shortest is the wire
    both = np.all(np.stack([stamps[rank][common[rank]] for rank in ranks]), axis=0)
    wires = left.min(axis=0)[both] if both.any() else left.min(axis=0)
    wire = float(wires.mean())
    columns = np.arange(last.size)
    critical = {
        phase: float(np.stack([turn[rank][phase] for rank in ranks])[last, columns].mean()) for phase in OWN_PHASES
    }
    critical["comm_exposed"] = float(left[last, columns].mean())
    critical["unattributed"] = max(0.0, step_s - sum(critical.values()))
    others = np.where(whole.shape[0] > 2, np.median(whole, axis=0), whole.min(axis=0))
    waited = (slowest - others)[1:]
    return Account(
        step_s=step_s,
        own=means,
        exposed=exposed_mean,
        wire_s=wire,
        skew_s=float(waited.mean()),
        late_share=late,
        kept_waiting_s={rank: float(np.where(last[1:] == i, waited, 0.0).mean()) for i, rank in enumerate(ranks)},
        budget=Budget(critical, _per_rank(means, exposed_mean, lengths)),
        sampled_steps=int(both.sum()),
        wire_error=relative_error(wires),
        rows=common,
        turns={rank: whole[i] for i, rank in enumerate(ranks)},
    )


def _common_rows(steady: Mapping[int, RankSteps]) -> dict[int, NDArray[np.int64]]:
    """Row numbers of the unfolded steps that all ranks have, in step order."""
    sets = [set(steps.step[steps.count == 1].tolist()) for steps in steady.values()]
    shared = np.array(sorted(set.intersection(*sets)), dtype=np.int64)
    rows = {}
    for rank, steps in steady.items():
        order = np.argsort(steps.step, kind="stable")
        rows[rank] = order[np.searchsorted(steps.step[order], shared)]
    return rows


def _turn(phases: Mapping[str, Array], rows: NDArray[np.int64]) -> dict[str, Array]:
    """From one release to the next: what came after the backward of the step before, the rest of this step.

    What came after the last backward stands in for what came before the first step, so that nothing is lost at the edges.
    """
    return {
        phase: np.roll(phases[phase][rows], 1) if phase in _AFTER_BACKWARD else phases[phase][rows]
        for phase in OWN_PHASES
    }
