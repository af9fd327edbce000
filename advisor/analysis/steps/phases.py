"""The steps of one rank, row by row: seconds of each phase, of waiting for other ranks and of exposed communication.

On a GPU the stream's own times count where events were read, since the host runs ahead of it. In a long run only part
of the steps is kept in full, and only part of the events; unknown values of a row are inferred from rows where they
are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.comm.collective_calls import held
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Recording, Table

Array = NDArray[np.float64]

AFTER_BACKWARD = ("optimizer", "gap.evaluation", "gap.checkpoint", "gap")
OWN_PHASES = ("input_wait", "forward", "backward", *AFTER_BACKWARD)
WAITS_FOR_BUFFERS = "waits_for_buffers"  # a column of the steps, where it is known: seconds at the start of the forward
# A column, where it is known: seconds between backward and update in which the user's own code ran, and neither clipping nor an exchange.
BEFORE_UPDATE = "before_update"
# The same of a loop without a loader: seconds after the update that are no part of the chunk with the next batch and the forward in it.
AFTER_UPDATE = "after_update"
IN_MODEL = "in_model"  # and those that are the model's
_ON_STREAM = ("input_wait", "forward", "backward", "optimizer", "gap")
# Share of the latest steps for the stream's times to replace the host's: most; or, where steps are so short that only a block of them now
# and then has events, so many early and late ones among them.
_READ_SHARE = 0.5
_READ_STEPS = 20
# A step of which no event was kept is split as the others are, unless it is this much longer than the usual: what made it so, the host saw.
_ODD_STEP_RATIO = 1.5
# Where steps differ in size, backward grows with forward. The forward tells the backward of a step that nobody stamped if it does so twice
# as well as the usual backward does, over so many stamped ones, and half of these are a tenth and more apart from it, as sizes are.
_ERROR_RATIO_MAX = 0.5
_TELLS_STEPS = 10
_SIZE_SPREAD_MIN = 0.1


def phases_of(steps: RankSteps, gpu: Table | None) -> dict[str, Array]:
    """Per row, the seconds of each phase. The GPU's own times replace the host's where events were read."""
    c = steps.columns
    own, after = c.get(BEFORE_UPDATE, 0.0), c.get(AFTER_UPDATE, 0.0)
    host = {
        "input_wait": c["input_wait"],
        "forward": c["forward"] - after,
        "backward": c["backward"],
        "optimizer": c["optimizer"] + c["clip"] - own,
        "gap.evaluation": c["evaluation"],
        "gap.checkpoint": c["checkpoint"],
        "gap": c["gap"] + own + after,
    }
    return _on_gpu(steps, gpu, host) if gpu is not None and events_read(steps, gpu) else host


def events_read(steps: RankSteps, gpu: Table | None) -> bool:
    """Events were read for most of the latest steps, or for blocks of them all along."""
    read = _latest_read(steps, gpu)
    return most_events_read(steps, gpu) or min(half.sum() for half in np.array_split(read, 2)) >= _READ_STEPS


def most_events_read(steps: RankSteps, gpu: Table | None) -> bool:
    read = _latest_read(steps, gpu)
    return bool(read.mean() >= _READ_SHARE) if read.size else False


def _latest_read(steps: RankSteps, gpu: Table | None) -> NDArray[np.bool_]:
    """Marks the latest steps that have GPU events."""
    if gpu is None or gpu.size == 0:
        return np.empty(0, np.bool_)
    return np.isin(steps.step[steps.latest], gpu["step"])


def _on_gpu(steps: RankSteps, gpu: Table, host: Mapping[str, Array]) -> dict[str, Array]:
    """The stream's times, which over many steps come to the host's: kernels of one step may run while the host is in the next."""
    aside, single = host["gap.evaluation"] + host["gap.checkpoint"], steps.count == 1
    sums, whole = _on_stream(steps, gpu)
    after = np.maximum(0.0, sums["gap"] - aside)
    # starting workers comes before the fetch that ends the gap, and is the next step's
    starting = np.minimum(after[:-1], steps.columns["loader_start"][1:])
    sums["gap"] = after - np.append(starting, 0.0)
    sums["input_wait"] = sums["input_wait"] + np.append(0.0, starting)
    total, left = np.sum(list(sums.values()), axis=0), steps.length - aside
    # of several steps in a row only some have their events, and perhaps not the one with the evaluation
    seen = whole & (single | (aside == 0)) & (total > 0)
    scale = np.where(seen, left / np.maximum(total, 1e-12), 1.0)
    alone = seen & single
    if alone.any():  # one step's differs by the queue's depth, and more where the host waits for the GPU now and then
        scale[alone] = np.clip(left[alone].sum() / total[alone].sum(), 0.5, 2.0)
    usual_s = float(np.median((left / steps.count)[seen])) if seen.any() else 0.0
    own = _before_update_on_stream(steps, sums)
    sums = {**sums, "optimizer": sums["optimizer"] - own, "gap": sums["gap"] + own}
    alike = ~seen & (left <= _ODD_STEP_RATIO * usual_s * steps.count)
    everything = max(float(total[seen].sum()), 1e-12)
    told = {}
    for name, seconds in sums.items():
        as_usual = left * float(seconds[seen].sum()) / everything
        told[name] = np.where(seen, seconds * scale, np.where(alike, as_usual, host[name]))
    return {**host, **told}


def _on_stream(steps: RankSteps, gpu: Table) -> tuple[dict[str, Array], NDArray[np.bool_]]:
    """(seconds of each phase as far as events tell, of which rows they tell the whole).

    The gap after a step ends with the next fetch: it stands in the next step's record.
    """
    sums: dict[str, Array] = {}
    whole = np.ones(steps.step.size, np.bool_)
    for name in _ON_STREAM:
        at = _rows_of(steps, gpu["step"] - (name == "gap"))
        seconds = gpu[f"{name}_ns"][at >= 0] / 1e9
        sums[name] = np.asarray(np.bincount(at[at >= 0], seconds, minlength=steps.step.size), np.float64)
        whole &= np.bincount(at[at >= 0], minlength=steps.step.size) > 0
    return sums, whole


def lengths_of(steps: RankSteps, gpu: Table | None) -> Array:
    """Seconds of each row: on the stream where most events were read. A host that runs ahead waits now and then, the GPU does not."""
    if gpu is None or not most_events_read(steps, gpu):
        return steps.length
    sums, whole = _on_stream(steps, gpu)
    return np.where(whole & (steps.count == 1), np.sum(list(sums.values()), axis=0), steps.length)


def _before_update_on_stream(steps: RankSteps, sums: Mapping[str, Array]) -> Array:
    """Time that the GPU waited for the user's own code between backward and update.

    At the end of the backward it is behind the host by what forward and backward take it longer, and works on meanwhile. And launching the
    update takes the host as long as it does, whatever came before.
    """
    c, one = steps.columns, steps.count == 1
    if BEFORE_UPDATE not in c:
        return np.zeros(steps.step.size)
    behind = np.maximum(0.0, sums["forward"] + sums["backward"] - c["forward"] - c["backward"])
    most = np.maximum(0.0, sums["optimizer"] - c["optimizer"])
    own = np.where(one, np.clip(c[BEFORE_UPDATE] - behind, 0.0, most), 0.0)
    share = float(own.sum()) / max(float(sums["optimizer"][one].sum()), 1e-12)
    return np.where(one, own, share * sums["optimizer"])  # of several steps in a row not all have their events


def _rows_of(steps: RankSteps, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row of each step number; -1 where no row holds it."""
    order = np.argsort(steps.step, kind="stable")
    at = np.searchsorted(steps.step[order], numbers, side="right") - 1
    row = order[np.maximum(at, 0)]
    holds = (at >= 0) & (numbers < steps.step[row] + steps.count[row])
    return np.where(holds, row, -1)


def exposed_comm(
    steps: RankSteps, comm: Table | None, phases: Mapping[str, Array]
) -> tuple[Array, NDArray[np.bool_]] | None:
    """(exposed communication per row, which rows were stamped); None where DDP stamped nothing.

    Unstamped: what the backward takes beyond the own backward of a stamped step, less what chance adds to that.
    """
    if comm is None or comm.size == 0:
        return None
    backward, table = phases["backward"], comm[np.argsort(comm["step"])]
    at = np.clip(np.searchsorted(table["step"], steps.step), 0, table.size - 1)
    row = table[at]
    stamped = (row["step"] == steps.step) & (steps.count == 1)
    if not stamped.any():
        return None
    each = after_last_gradient_ns(row) / 1e9
    exposed = np.clip(exchanges(steps, comm) * each, 0.0, backward)
    own = _own_backward(steps, phases["forward"], backward - exposed, stamped)
    beyond = backward - own
    chance = np.where(steps.count == 1, _by_chance(beyond[stamped], float(exposed[stamped].sum())), 0.0)
    return np.where(stamped, exposed, np.clip(beyond - chance, 0.0, None)), stamped


def _by_chance(beyond: Array, exposed: float) -> float:
    """Amounts to take from each of `beyond`, without going below zero, so that they sum to `exposed`.

    Computing takes longer now and then, and is never negative: taken as it comes, what a backward takes beyond the usual is more than the
    wire. (The threshold of a projection onto a simplex: Duchi and others, 2008.)
    """
    high = np.sort(beyond)[::-1]
    each = (np.cumsum(high) - exposed) / np.arange(1, high.size + 1)
    return float(each[np.flatnonzero(high >= each)[-1]])


def after_last_gradient_ns(comm: Table) -> NDArray[np.int64]:
    """The part of each exchange that the backward pass does not hide, in device time.

    DDP's stamps of begins and ends are the host's, and NCCL lets the host go on at once.
    """
    return np.asarray(comm["comm_ns"] - comm["overlap_ns"], np.int64)


def _own_backward(steps: RankSteps, forward: Array, own: Array, stamped: NDArray[np.bool_]) -> Array:
    """Backward time of each row without waiting, as far as rows with stamps show it."""
    seen, beside = own[stamped], forward[stamped]
    usual = float(np.median(seen))
    apart = float(np.median(np.abs(seen - usual)))
    if seen.size >= _TELLS_STEPS and apart >= _SIZE_SPREAD_MIN * usual and (beside > 0).all():
        times = float(np.median(seen / beside))
        if np.median(np.abs(seen - times * beside)) < _ERROR_RATIO_MAX * apart:
            return times * forward
    return usual * steps.count


def exchanges(steps: RankSteps, comm: Table | None) -> int:
    """Gradient exchanges per step: one for each micro-batch outside `no_sync`. DDP stamps one of them.

    DDP counts the forward passes after which it will; of a model that is asked several times for one batch that says nothing.
    """
    if comm is None or comm.size < 2:
        return 1
    rows = comm[np.unique(comm["step"], return_index=True)[1]]
    apart = np.diff(rows["step"])
    per_step = np.diff(rows["iteration"]) / apart if apart.size else np.ones(1)
    batches = round(steps.per_step("micro_batches"))
    return int(np.clip(round(float(np.median(per_step))), 1, max(1, batches)))


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
    found = exposed_comm(steps, comm, phases)
    if found is not None:
        exposed, stamped = found
        phases = {**phases, "backward": phases["backward"] - exposed}
    waited = dict((None if events_read(steps, gpu) else held(steps, called)) or {})
    if exposed is not None and WAITS_FOR_BUFFERS in steps.columns:
        waited["forward"] = waited.get("forward", 0.0) + steps.columns[WAITS_FOR_BUFFERS]
    if waited:
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
