"""Splits the steps of one rank, row by row, into seconds of each phase, of waiting for other ranks and of exposed communication.

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
from rn50_advisor.advisor.analysis.comm.stream_meetings import waits_on_stream
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import FLAG_NO_OPTIMIZER

Array = NDArray[np.float64]

AFTER_BACKWARD = ("optimizer", "gap.evaluation", "gap.checkpoint", "gap")
OWN_PHASES = ("input_wait", "forward", "backward", *AFTER_BACKWARD)
# The following columns exist only if they are known.
WAITS_FOR_BUFFERS = (
    "waits_for_buffers"  # seconds that the start of the forward waits for another rank, or for its buffers
)
# Seconds of the user's own code between backward and update, without clipping and exchanges.
BEFORE_UPDATE = "before_update"
# In a loop without a loader: seconds after the update that are not part of the chunk with the next batch and the forward.
AFTER_UPDATE = "after_update"
IN_MODEL = "in_model"  # in a loop without a loader: seconds of that chunk in the model
_ON_STREAM = ("input_wait", "forward", "backward", "optimizer", "gap")
# The stream's times replace the host's if this share of the latest steps has events. If steps are so short that only occasional blocks of
# them have events, this number in the early half and in the late half is enough.
_READ_SHARE = 0.5
_READ_STEPS = 20
_DRY_S = 30e-6  # between two events with nothing between them there are a few microseconds
# A step without events is split like the others, unless it is this much longer than usual: then the host's times show the cause.
_ODD_STEP_RATIO = 1.5
# If steps differ in size, backward grows with forward. The backward of an unstamped step is estimated from its forward if, over at least
# this many stamped steps, the error is below this ratio of the error of using the median backward, and the median deviation from that
# backward is at least this share of it.
_ERROR_RATIO_MAX = 0.5
_COMPARED_STEPS_MIN = 10
_SIZE_SPREAD_MIN = 0.1
# A step has as many exchanges as DDP counts if its backward time has at least this share of so many stamped backward passes. Measured with
# eight on two busy cores: 1.0. A model that is called twice for one backward pass has 0.5.
_PASSES_SHARE_MIN = 0.8


def phases_of(steps: RankSteps, gpu: Table | None) -> dict[str, Array]:
    """Seconds of each phase per row. The GPU's own times replace the host's where events were read."""
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
    """True if events were read for most of the latest steps, or for blocks of them throughout."""
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
    """The stream's times, scaled to the host's over many steps: kernels of one step may run while the host is in the next."""
    aside, single = host["gap.evaluation"] + host["gap.checkpoint"], steps.count == 1
    sums, whole = _on_stream(steps, gpu)
    after = np.maximum(0.0, sums["gap"] - aside)
    # workers start before the fetch that ends the gap, but their start belongs to the next step
    starting = np.minimum(after[:-1], steps.columns["loader_start"][1:])
    sums["gap"] = after - np.append(starting, 0.0)
    sums["input_wait"] = sums["input_wait"] + np.append(0.0, starting)
    update = _unmarked_update(steps, sums)
    sums |= {"gap": sums["gap"] - update, "optimizer": sums["optimizer"] + update}
    total, left = np.sum(list(sums.values()), axis=0), steps.length - aside
    # in a row of several steps only some have events, perhaps not the one with the evaluation
    seen = whole & (single | (aside == 0)) & (total > 0)
    scale = np.where(seen, left / np.maximum(total, 1e-12), 1.0)
    alone = seen & single
    if alone.any():  # a single step differs by the queue's depth, and more if the host sometimes waits for the GPU
        scale[alone] = np.clip(left[alone].sum() / total[alone].sum(), 0.5, 2.0)
    usual_s = float(np.median((left / steps.count)[seen])) if seen.any() else 0.0
    own = _before_update_on_stream(steps, sums)
    sums = {**sums, "optimizer": sums["optimizer"] - own, "gap": sums["gap"] + own}
    alike = ~seen & (left <= _ODD_STEP_RATIO * usual_s * steps.count)
    everything = max(float(total[seen].sum()), 1e-12)
    scaled = {}
    for name, seconds in sums.items():
        as_usual = left * float(seconds[seen].sum()) / everything
        scaled[name] = np.where(seen, seconds * scale, np.where(alike, as_usual, host[name]))
    return {**host, **scaled}


def _unmarked_update(steps: RankSteps, sums: Mapping[str, Array]) -> Array:
    """Seconds per row of the stream's gap in which it still works on an update that calls no hook, because it is compiled.

    A stream with work left when the next batch arrives has not idled. Otherwise it idles for no longer than the host takes from the end of
    the backward pass to the next fetch.
    """
    unmarked = (steps.flags & FLAG_NO_OPTIMIZER) != 0
    caught_up = np.append(sums["input_wait"][1:] > _DRY_S * steps.count[1:], True)
    idle = np.where(caught_up, steps.columns["gap"], 0.0)
    return np.where(unmarked, np.maximum(0.0, sums["gap"] - idle), 0.0)


def _on_stream(steps: RankSteps, gpu: Table) -> tuple[dict[str, Array], NDArray[np.bool_]]:
    """(seconds of each phase as far as events show them, mask of rows with events for every phase).

    The gap after a step ends with the next fetch, so it is in the next step's record.
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
    """Seconds of each row; the stream's if most events were read. A host that runs ahead waits now and then, the GPU does not."""
    if gpu is None or not most_events_read(steps, gpu):
        return steps.length
    sums, whole = _on_stream(steps, gpu)
    return np.where(whole & (steps.count == 1), np.sum(list(sums.values()), axis=0), steps.length)


def _before_update_on_stream(steps: RankSteps, sums: Mapping[str, Array]) -> Array:
    """Seconds per row that the GPU waited for the user's own code between backward and update.

    At the end of the backward, the GPU is behind the host by the extra time that forward and backward take it. It works on that meanwhile.
    Launching the update takes the host the same time whatever came before.
    """
    c, one = steps.columns, steps.count == 1
    if BEFORE_UPDATE not in c:
        return np.zeros(steps.step.size)
    behind = np.maximum(0.0, sums["forward"] + sums["backward"] - c["forward"] - c["backward"])
    most = np.maximum(0.0, sums["optimizer"] - c["optimizer"])
    own = np.where(one, np.clip(c[BEFORE_UPDATE] - behind, 0.0, most), 0.0)
    share = float(own.sum()) / max(float(sums["optimizer"][one].sum()), 1e-12)
    return np.where(one, own, share * sums["optimizer"])  # in a row of several steps not all have events


def _rows_of(steps: RankSteps, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row of each step number; -1 if no row holds it."""
    order = np.argsort(steps.step, kind="stable")
    at = np.searchsorted(steps.step[order], numbers, side="right") - 1
    row = order[np.maximum(at, 0)]
    holds = (at >= 0) & (numbers < steps.step[row] + steps.count[row])
    return np.where(holds, row, -1)


def exposed_comm(
    steps: RankSteps, comm: Table | None, phases: Mapping[str, Array]
) -> tuple[Array, NDArray[np.bool_]] | None:
    """(seconds of exposed communication per row, mask of stamped rows); None if DDP stamped nothing.

    In unstamped rows it is the excess of the backward over the own backward of stamped steps, less the excess that is due to chance.
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
    times = exchanges(steps, comm, backward)
    exposed = np.clip(times * each, 0.0, backward)
    forward = phases["forward"]
    own = _own_backward(steps, forward, backward - exposed, stamped)
    if times == 1 and stamped.sum() < _COMPARED_STEPS_MIN:
        beside_s = float(np.median(forward[stamped] - row["forward_ns"][stamped] / 1e9))
        own = _own_by_stamps(table, forward - beside_s * steps.count, otherwise=own)
    beyond = backward - own
    chance = np.where(steps.count == 1, _by_chance(beyond[stamped], float(exposed[stamped].sum())), 0.0)
    return np.where(stamped, exposed, np.clip(beyond - chance, 0.0, None)), stamped


def _by_chance(beyond: Array, exposed: float) -> float:
    """The amount to subtract from each of `beyond`, clipping at zero, so that the rest sums to `exposed`.

    Compute sometimes takes longer and is never negative, so the excess over the usual backward would overestimate communication. (This is
    the threshold of a projection onto a simplex: Duchi and others, 2008.)
    """
    high = np.sort(beyond)[::-1]
    each = (np.cumsum(high) - exposed) / np.arange(1, high.size + 1)
    return float(each[np.flatnonzero(high >= each)[-1]])


def after_last_gradient_ns(comm: Table) -> NDArray[np.int64]:
    """Nanoseconds of device time of each exchange that the backward pass does not hide.

    DDP's start and end stamps are in host time, and NCCL lets the host go on at once.
    """
    return np.asarray(comm["comm_ns"] - comm["overlap_ns"], np.int64)


def _own_by_stamps(comm: Table, forward: Array, *, otherwise: Array) -> Array:
    """Seconds of each row's backward without waiting, in proportion to its forward as in all stamped iterations, if batches differ in size.

    On a GPU most of these are the first of the run: they are not among the steady ones.
    """
    beside, seen = comm["forward_ns"] / 1e9, comm["compute_ns"] / 1e9
    times = _times_forward(seen, beside)
    return otherwise if times is None else times * np.maximum(0.0, forward)


def _times_forward(seen: Array, beside: Array) -> float | None:
    """How many times as long as forward backward is, if they grow with each other; None if they hardly vary, or were seen too seldom."""
    usual = float(np.median(seen))
    apart = float(np.median(np.abs(seen - usual)))
    if seen.size < _COMPARED_STEPS_MIN or apart < _SIZE_SPREAD_MIN * usual or not (beside > 0).all():
        return None
    times = float(np.median(seen / beside))
    return times if np.median(np.abs(seen - times * beside)) < _ERROR_RATIO_MAX * apart else None


def _own_backward(steps: RankSteps, forward: Array, own: Array, stamped: NDArray[np.bool_]) -> Array:
    """Seconds of each row's backward without waiting, estimated from stamped rows."""
    times = _times_forward(own[stamped], forward[stamped])
    return float(np.median(own[stamped])) * steps.count if times is None else times * forward


def exchanges(steps: RankSteps, comm: Table | None, backward: Array) -> int:
    """Gradient exchanges per step: one for each backward pass outside `no_sync`. DDP stamps one of them.

    DDP counts the forward passes that an exchange follows. A model may be called several times before one backward pass, so the number of
    those passes is the upper limit: that of the micro-batches, or more if the loop splits a batch itself or has no loader. `backward` is
    the seconds of each row's backward passes with their exchanges.
    """
    if comm is None or comm.size < 2:
        return 1
    rows = comm[np.unique(comm["step"], return_index=True)[1]]
    apart = np.diff(rows["step"])
    per_step = np.diff(rows["iteration"]) / apart if apart.size else np.ones(1)
    counted = round(float(np.median(per_step)))
    passes = _passes(steps, rows, backward)
    if passes >= _PASSES_SHARE_MIN * counted:
        return max(1, counted)
    return int(np.clip(counted, 1, max(1, int(passes), round(steps.per_step("micro_batches")))))


def _passes(steps: RankSteps, comm: Table, backward: Array) -> float:
    """The number of stamped backward passes that a step's backward time is as long as; 0 if their length is unknown."""
    each = float(np.median(comm["compute_ns"] + after_last_gradient_ns(comm))) / 1e9
    return float(np.median(backward / steps.count)) / each if (comm["compute_ns"] > 0).all() else 0.0


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of one rank: seconds of its own phases, and of waiting in collectives."""

    phases: Mapping[str, Array]
    exposed: Array | None  # None: its communication was not timed
    stamped: NDArray[np.bool_]
    exchanges: int = 1  # of gradients, per step


def split(steps: RankSteps, gpu: Table | None, comm: Table | None, called: Table | None) -> Split:
    """Splits rows into phases and exposed time. `called`: collectives called from Python; on a GPU the stream's times include them."""
    phases = phases_of(steps, gpu)
    exposed: Array | None = None
    stamped = np.zeros(steps.step.size, np.bool_)
    times = exchanges(steps, comm, phases["backward"])
    on_stream = events_read(steps, gpu)
    met = waits_on_stream(steps, gpu, phases) if on_stream and called is not None else None
    if met is not None:
        phases = {**phases, **{phase: phases[phase] - seconds for phase, seconds in met[0].items()}}
    found = exposed_comm(steps, comm, phases)
    if found is not None:
        exposed, stamped = found
        phases = {**phases, "backward": phases["backward"] - exposed}
    if met is not None:
        total = np.sum(np.stack(list(met[0].values())), axis=0)
        exposed, stamped = total if exposed is None else exposed + total, stamped | met[1]
    waited = dict((None if on_stream else held(steps, called)) or {})
    if WAITS_FOR_BUFFERS in steps.columns and (exposed is not None or on_stream):
        waited["forward"] = waited.get("forward", 0.0) + steps.columns[WAITS_FOR_BUFFERS]
    if waited:
        taken = {phase: np.minimum(seconds, phases[phase]) for phase, seconds in waited.items()}
        phases = {**phases, **{phase: phases[phase] - seconds for phase, seconds in taken.items()}}
        total = np.sum(np.stack(list(taken.values())), axis=0)
        if exposed is None:
            stamped = steps.count == 1
        exposed = total if exposed is None else exposed + total
    return Split(phases, exposed, stamped, times)


def split_of(recording: Recording, steps: RankSteps, *, ranks: int) -> Split:
    """Like `split`, for a rank of a job with `ranks` ranks. A single rank waits for no other."""
    rank = steps.rank
    called = recording.collectives.get(rank) if ranks > 1 else None
    return split(steps, recording.gpu_steps.get(rank), recording.comm.get(rank), called)
