"""Attributes the time of a step: own work of each rank, exposed communication, and waiting for the straggler.

Ranks of a DDP job leave the gradient all-reduce together. A rank's *turn* runs from one such moment to the next: the time after the
backward of step n-1 (clipping, optimizer, gap), then input, forward and backward of step n up to its last gradient. The others wait for the
rank with the longest turn. The time that its own all-reduce still takes after its turn is the transfer time ("wire"). (DDP stamps both ends
of each sampled backward. With rank 1 made 100 ms late, its bucket took 5 ms and rank 0's 94-106 ms.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.comm.stream_meetings import in_turn_s, waits_timed
from rn50_advisor.advisor.analysis.steps.phases import (
    AFTER_BACKWARD,
    OWN_PHASES,
    WAITS_FOR_BUFFERS,
    events_read,
    split,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, common_rows
from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.model.report import EPOCH_START, INPUT_OR_FORWARD, Budget
from rn50_advisor.advisor.model.statistics import error_of_mean, relative_error

Array = NDArray[np.float64]

# A rank is clearly the last if its turn exceeds every other's by this share of the step. Below it, chance decides.
CLEAR_MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class StepAttribution:
    """Seconds per step over the steady steps. `own` holds the phases without waiting for others."""

    step_s: float
    own: Mapping[int, Mapping[str, float]]
    exposed: Mapping[int, float]
    wire_s: float | None  # None: nothing stamped the communication
    skew_s: float
    late_share: Mapping[int, float]
    late_run: Mapping[int, float]  # by rank, mean number of consecutive steps in which it comes last
    kept_waiting_s: Mapping[int, float]  # by rank, the part of the skew that it causes; the sum is `skew_s`
    budget: Budget
    sampled_steps: int
    wire_error: float = 0.0  # two standard errors of `wire_s`, relative
    excess_error_s: Mapping[int, float] = field(default_factory=dict)  # by rank, for its turns beyond the others'
    span_s: float | None = None  # time of the exchange, including the part hidden behind backward
    exchanges: int = 1  # gradient exchanges per step, where DDP stamps them
    # by rank, for the steps that all ranks have: row numbers, and seconds of each turn; empty if the ranks' steps cannot be matched
    rows: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    turns: Mapping[int, Array] = field(default_factory=dict)


def account(
    steady: Mapping[int, RankSteps],
    gpu: Mapping[int, Table],
    comm: Mapping[int, Table],
    called: Mapping[int, Table] | None = None,
) -> StepAttribution:
    """Attributes the time of the steady steps. Raises ValueError if there are none."""
    phases: dict[int, Mapping[str, Array]] = {}
    exposed: dict[int, Array] = {}
    stamps: dict[int, NDArray[np.bool_]] = {}
    times: list[int] = []
    for rank, steps in steady.items():
        parts = split(steps, gpu.get(rank), comm.get(rank), (called or {}).get(rank) if len(steady) > 1 else None)
        phases[rank] = parts.phases
        times.append(parts.exchanges)
        if parts.exposed is not None:
            exposed[rank], stamps[rank] = parts.exposed, parts.stamped
    means = {r: {p: float(v.sum() / steady[r].count.sum()) for p, v in named.items()} for r, named in phases.items()}
    exposed_mean = {rank: float(values.sum() / steady[rank].count.sum()) for rank, values in exposed.items()}
    lengths = {rank: steps.per_step_s for rank, steps in steady.items()}
    step_s = float(np.mean(list(lengths.values())))
    common = common_rows(steady)
    together = len(steady) > 1 and len(exposed) == len(steady) and min(rows.size for rows in common.values()) > 1
    if not together:
        return _apart(means, exposed_mean, step_s, lengths, stamps)
    at_exchange = {
        rank: np.maximum(0.0, values - steady[rank].columns.get(WAITS_FOR_BUFFERS, 0.0))
        for rank, values in exposed.items()
    }
    made = _together(common, phases, (exposed, at_exchange), stamps, (means, exposed_mean, step_s, lengths))
    stamped = any(table.size for rank, table in comm.items() if rank in steady)
    met = all(waits_timed(steps, gpu.get(rank)) for rank, steps in steady.items())
    if not (stamped or met) and all(events_read(steps, gpu.get(rank)) for rank, steps in steady.items()):
        made = replace(made, wire_s=None)  # only waiting for each other is known, not the exchange
    if met and made.wire_s is not None:
        made = replace(made, wire_s=max(0.0, made.wire_s - in_turn_s(steady, gpu, called or {})))
    return replace(made, span_s=_span_s(steady, comm, min(times)), exchanges=min(times))


def _span_s(steady: Mapping[int, RankSteps], comm: Mapping[int, Table], times: int) -> float | None:
    """Seconds per step from the first all-reduce of a backward pass to the end of the last, including hidden time; None without stamps.

    `times` is the number of exchanges per step. The shortest rank counts, because it waits for no other.
    """
    spans = []
    for rank, steps in steady.items():
        table = comm.get(rank)
        if table is not None and table.size:
            rows = table[(table["step"] >= int(steps.step[0])) & (table["step"] <= int(steps.step[-1]))]
            if rows.size:
                spans.append(times * float(np.median(rows["comm_ns"])) / 1e9)
    return min(spans, default=None)


def _per_rank(
    means: Mapping[int, Mapping[str, float]], exposed: Mapping[int, float], lengths: Mapping[int, float]
) -> dict[int, dict[str, float]]:
    budget = {}
    for rank, named in means.items():
        row = {**named, **({"comm_exposed": exposed[rank]} if rank in exposed else {})}
        row["unattributed"] = _rest_s(lengths[rank], row)
        budget[rank] = row
    return budget


def _apart(
    means: Mapping[int, dict[str, float]],
    exposed: Mapping[int, float],
    step_s: float,
    lengths: Mapping[int, float],
    stamps: Mapping[int, NDArray[np.bool_]],
) -> StepAttribution:
    """One rank, or ranks without communication stamps: the longest step is the critical one."""
    per_rank = _per_rank(means, exposed, lengths)
    critical = max(lengths, key=lambda rank: lengths[rank])
    wire = exposed.get(critical) if len(means) > 1 else 0.0
    return StepAttribution(
        step_s=step_s,
        own=means,
        exposed=exposed,
        wire_s=wire,
        skew_s=0.0,
        late_share={},
        late_run={},
        kept_waiting_s={},
        budget=Budget(per_rank[critical], per_rank),
        sampled_steps=min((int(s.sum()) for s in stamps.values()), default=0),
    )


def _together(
    common: Mapping[int, NDArray[np.int64]],
    phases: Mapping[int, Mapping[str, Array]],
    waits: tuple[Mapping[int, Array], Mapping[int, Array]],
    stamps: Mapping[int, NDArray[np.bool_]],
    totals: tuple[dict[int, dict[str, float]], dict[int, float], float, dict[int, float]],
) -> StepAttribution:
    """Attribution for ranks whose steps can be matched. `waits`: by rank, all exposed time, and the part of it in the gradient exchange."""
    means, exposed_mean, step_s, lengths = totals
    exposed, at_exchange = waits
    ranks = sorted(common)
    turn = {rank: _turn(phases[rank], common[rank]) for rank in ranks}
    whole = np.stack([sum(turn[rank].values()) for rank in ranks])  # ranks x steps
    left = np.stack([exposed[rank][common[rank]] for rank in ranks])
    last = whole.argmax(axis=0)
    ordered = np.sort(whole, axis=0)
    margin = ordered[-1] - ordered[-2]
    clear = margin > CLEAR_MARGIN * step_s
    # the first turn begins in a step before it, which is unknown
    when = {rank: ((last == i) & clear)[1:] for i, rank in enumerate(ranks)}
    # the wire: the step's wait after the last rank's last gradient. The shortest wait of all ranks in a collective is the wire
    both = np.all(np.stack([stamps[rank][common[rank]] for rank in ranks]), axis=0)
    shortest = np.stack([at_exchange[rank][common[rank]] for rank in ranks]).min(axis=0)
    wires = shortest[both] if both.any() else shortest
    wire = float(wires.mean())
    critical = _path(turn, left, last)
    most = ranks[int(np.bincount(last).argmax())]
    for phase, values in {**phases[most], "comm_exposed": exposed[most]}.items():
        # the difference to the mean over all steps, including folded ones and those that another rank has lost
        beside = {**means[most], "comm_exposed": exposed_mean[most]}[phase] - float(values[common[most]].mean())
        critical[phase] = max(0.0, critical[phase] + beside)
    critical["unattributed"] = _rest_s(step_s, critical)
    waited = waiting(whole)[1:]
    return StepAttribution(
        step_s=step_s,
        own=means,
        exposed=exposed_mean,
        wire_s=wire,
        skew_s=float(waited.mean()),
        late_share={rank: float(steps.mean()) for rank, steps in when.items()},
        late_run={rank: _in_a_row(steps) for rank, steps in when.items()},
        kept_waiting_s={rank: float(np.where(last[1:] == i, waited, 0.0).mean()) for i, rank in enumerate(ranks)},
        budget=Budget(critical, _per_rank(means, exposed_mean, lengths)),
        sampled_steps=int(both.sum()),
        wire_error=relative_error(wires),
        excess_error_s=_excess_errors_s(whole, ranks),
        rows=common,
        turns={rank: whole[i] for i, rank in enumerate(ranks)},
    )


def _excess_errors_s(turns: Array, ranks: list[int]) -> dict[int, float]:
    """By rank, two standard errors of the excess of its turns over the other rank's, or over the median if there are more than two."""
    usual = np.median(turns, axis=0) if len(ranks) > 2 else None
    return {rank: error_of_mean(turns[i] - (turns[1 - i] if usual is None else usual)) for i, rank in enumerate(ranks)}


def waiting(turns: Array) -> Array:
    """Seconds that the other ranks wait for the last one in each step. `turns` is ranks x steps."""
    others = np.median(turns, axis=0) if turns.shape[0] > 2 else turns.min(axis=0)
    return np.asarray(turns.max(axis=0) - others, np.float64)


def _in_a_row(late: NDArray[np.bool_]) -> float:
    """Mean number of consecutive late steps; 0 if there are none."""
    late_runs = int(late[:1].sum()) + int((late[1:] & ~late[:-1]).sum())
    return float(late.sum()) / late_runs if late_runs else 0.0


def _path(turn: Mapping[int, Mapping[str, Array]], left: Array, last: NDArray[np.intp]) -> dict[str, float]:
    """Mean seconds of each phase on the rank that comes last in each step."""
    columns = np.arange(last.size)
    path = {
        phase: float(np.stack([turn[r][phase] for r in sorted(turn)])[last, columns].mean()) for phase in OWN_PHASES
    }
    return {**path, "comm_exposed": float(left[last, columns].mean())}


def _turn(phases: Mapping[str, Array], rows: NDArray[np.int64]) -> dict[str, Array]:
    """Phases of each turn: those after the backward of the previous step, and the others of this step.

    The time after the last backward stands in for the unknown time before the first step, so that no time is lost.
    """
    return {
        phase: np.roll(phases[phase][rows], 1) if phase in AFTER_BACKWARD else phases[phase][rows]
        for phase in OWN_PHASES
    }


def _rest_s(whole_s: float, parts: Mapping[str, float]) -> float:
    """Seconds of the whole that no part covers; 0 below a nanosecond, which is rounding."""
    rest = whole_s - sum(parts.values())
    return rest if rest >= 1e-9 else 0.0


# Names for the parts of the budget that need their own.
def labelled(budget: Budget, steady: Mapping[int, RankSteps], epoch_start_s: Mapping[int, float]) -> Budget:
    """The budget with epoch starts separated from the usual input wait, and forward renamed where it may include a fetch.

    `epoch_start_s`: by rank, seconds per step by which the first fetch of each epoch exceeds a usual one.
    """
    without_loader = {rank for rank, steps in steady.items() if not steps.fed}
    per_rank = {
        rank: _with_joint_forward(row) if rank in without_loader else _epochs_apart(row, epoch_start_s.get(rank, 0.0))
        for rank, row in budget.per_rank.items()
    }
    # ranks start their epochs together, and all wait for the slowest
    critical = _epochs_apart(budget.critical, max(epoch_start_s.values(), default=0.0))
    return Budget(_with_joint_forward(critical) if without_loader else critical, per_rank)


def _epochs_apart(row: Mapping[str, float], epoch_start_s: float) -> dict[str, float]:
    apart = min(epoch_start_s, row.get("input_wait", 0.0))
    return {**row, "input_wait": row["input_wait"] - apart, EPOCH_START: apart} if apart > 0 else dict(row)


def _with_joint_forward(row: Mapping[str, float]) -> dict[str, float]:
    return {INPUT_OR_FORWARD if phase == "forward" else phase: seconds for phase, seconds in row.items()}
