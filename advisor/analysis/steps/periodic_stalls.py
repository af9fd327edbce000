"""Finds stalls that recur with a period, in steps or in seconds, and events that coincide with them.

A stall is a step far above the usual one (above median + 5 MAD, and by at least a third). Stalls, or the tall ones of them, are periodic if
most distances between them equal one period or a multiple of it. Random stalls scatter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.stacks.after_update import periodic_call
from rn50_advisor.advisor.analysis.steps.phases import OWN_PHASES, lengths_of, most_events_read, split_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import PeriodicStall
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.statistics import weighted_quantile

Array = NDArray[np.float64]

_STALL_MADS = 5.0
_STALL_RATIO_MIN = 1.33  # of the usual step; needed where the MAD is close to 0
# Quantiles of stall height. If all stalls together follow no period, the tall ones may: a busy machine adds small ones by chance.
_HEIGHTS = (0.75, 0.9)
_EVENTS_MIN = 5
_PERIODS_SEEN_SHARE = (
    0.6  # of the stalls that the period would give over the stretch; stalls at the start only are no period
)
_PERIOD_MIN = 3  # steps; a change in every second step means two kinds of step
_REGULAR_SHARE_MIN = 0.75  # of the distances
_TOLERANCE_S = 0.1  # relative tolerance of a period in seconds
_COINCIDING_SHARE_MIN = 0.6  # share of the stalls that an event must coincide with to be named
_FLUSH_MB_PER_S = 5.0
_FLUSH_WRITE_RATIO = 3.0  # times the usual write rate
_DISK_READINGS_MIN = 3  # readings of the disk per stall; the probe reads once a second
_GROWTH_MIN = 1.5  # times from the first third of the stalls to the last, as for time between steps
_GROWTH_EVENTS_MIN = 3  # stalls in a third
_PAUSE_SHARE_MIN = 0.3  # of a stall's excess; the least part of a garbage collection or an evaluation to be named
# Minimum shares of a stall's excess for it to be extra work: in forward and backward each, and in the whole model. Measured: a WGAN's
# generator steps had 0.26 and 0.46 of it in forward and backward, R1 0.29 and 0.50. Waiting and housekeeping are in one phase only.
_EACH, _MODEL = 0.15, 0.75
_OF_MODEL = ("forward", "backward", "optimizer")
MORE_WORK = "more work for the model"
WORKER_COLLECTS = "a garbage collection in a worker"
_COLLECTIONS_MAX = 5_000  # the last batches with a collection that are read


def periodic_stalls(recording: Recording, steady: Mapping[int, RankSteps]) -> PeriodicStall | None:
    """The periodic stalls of the run's longest unbroken stretch of steps; None if there are none or they follow no period."""
    if not steady:
        return None
    longest = max(steady.values(), key=lambda steps: float(steps.length.sum()))
    rows = unbroken(longest)
    table = recording.gpu_steps.get(longest.rank)
    length = lengths_of(longest, table)[rows]
    if length.size < 2 * _EVENTS_MIN * _PERIOD_MIN:
        return None
    for height in (0.0, *_HEIGHTS):
        usual_s, heads, member = stalls_in(length, height)
        period, seconds = _periods(longest, rows, heads)
        if period is not None or seconds is not None:
            break
    else:
        return None
    at = longest.step[rows][heads]
    times_s = longest.start_ns[rows][heads] / 1e9
    excess = float(np.where(member, length - usual_s, 0.0).sum())
    if trains_on_gpu(recording) and not most_events_read(longest, table):
        # a host that runs ahead and sometimes waits for the GPU makes up for the wait in the next steps
        excess = min(excess, max(0.0, float((length - usual_s).sum())))
    rank, beyond = _where(recording, steady, at)
    phases = split_of(recording, longest, ranks=len(steady)).phases
    works = _works({name: phases[name][rows] for name in _OF_MODEL}, member, length - usual_s)
    return PeriodicStall(
        period_steps=period,
        period_s=float(np.median(np.diff(times_s))) if period is not None else seconds,
        events=int(heads.size),
        steps=int(length.size),
        usual_s=usual_s,
        stall_s=float(excess / heads.size),
        share=float(excess / length.sum()),
        rank=rank,
        phase=max(OWN_PHASES, key=lambda name: beyond[name]),
        coincides=_coincides(
            longest.keep(_mask(longest, rows)), member, length - usual_s, recording.batches.get(longest.rank)
        )
        or _flushes(recording, longest.start_ns[rows][heads], longest.end_ns[rows][heads])
        or (MORE_WORK if period is not None and rank is None and works else ""),
        last_step=int(at[-1]),
        call=None if longest.fed else periodic_call(recording, longest.rank, float(excess / length.sum())),
        gap_share=beyond["gap"] / max(sum(beyond.values()), 1e-9),
        grew=_growth(np.where(member, length - usual_s, 0.0), heads),
    )


def _growth(beyond: Array, heads: NDArray[np.int64]) -> tuple[float, float] | None:
    """Median length of the first and of the last third of the stalls, if the last are clearly longer than the first."""
    each = np.add.reduceat(beyond, heads)
    third = each.size // 3
    if third < _GROWTH_EVENTS_MIN:
        return None
    early, middle, late = (float(np.median(part)) for part in (each[:third], each[third:-third], each[-third:]))
    return (early, late) if early < middle < late and late >= _GROWTH_MIN * early else None


def _periods(steps: RankSteps, rows: NDArray[np.int64], heads: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """The period (in steps, in seconds) of the stalls that begin at `heads` within `rows`; each is None if they follow none."""
    if heads.size < _EVENTS_MIN:
        return None, None
    start_ns, end_ns = steps.start_ns[rows], steps.end_ns[rows]
    period = period_of(np.diff(steps.step[rows][heads]).astype(np.float64), tolerance=1.0, share=0.03)
    seconds = period_of(np.diff(start_ns[heads] / 1e9), tolerance=0.0, share=_TOLERANCE_S)
    if period is not None and (period < _PERIOD_MIN or heads.size < _PERIODS_SEEN_SHARE * rows.size / period):
        period = None
    if seconds is not None and heads.size < _PERIODS_SEEN_SHARE * float(end_ns[-1] - start_ns[0]) / 1e9 / seconds:
        seconds = None
    return period, seconds


def unbroken(steps: RankSteps) -> NDArray[np.int64]:
    """Rows of the longest stretch of consecutive single steps. Older steps are kept only in windows."""
    single = steps.count == 1
    follows = np.append(False, np.diff(steps.step) == 1) & single & np.append(False, single[:-1])
    start = np.flatnonzero(~follows)
    ends = np.append(start[1:], steps.step.size)
    if start.size == 0:
        return np.array([], dtype=np.int64)
    best = int(np.argmax(ends - start))
    return np.arange(start[best], ends[best])


def stalls_in(length: Array, height: float = 0.0) -> tuple[float, NDArray[np.int64], NDArray[np.bool_]]:
    """(usual step, first step of each stall, mask of steps in a stall). Consecutive long steps are one stall.

    `height`: count only stalls at least half as far above the usual as this quantile of all stalls; 0: count all.
    """
    usual = float(np.median(length))
    mad = float(np.median(np.abs(length - usual)))
    least = max(usual + _STALL_MADS * mad, _STALL_RATIO_MIN * usual)
    if height and (length > least).any():
        least = max(least, usual + 0.5 * float(np.quantile(length[length > least] - usual, height)))
    long = length > least
    heads = np.flatnonzero(long & ~np.append(False, long[:-1]))
    return usual, heads.astype(np.int64), long


def period_of(distances: Array, *, tolerance: float, share: float) -> float | None:
    """The distance that most of these equal, or a small multiple of it (a stall between was too short to show); None if there is none."""
    if distances.size < _EVENTS_MIN - 1:
        return None
    period = float(np.median(distances))
    if period <= 0:
        return None
    allowed = max(tolerance, share * period)
    multiples = np.maximum(1.0, np.round(distances / period))
    near = np.abs(distances - multiples * period) <= allowed
    regular = near & (multiples <= 3)
    once = near & (multiples == 1)
    return period if regular.mean() >= _REGULAR_SHARE_MIN and once.mean() >= 0.5 else None


def _mask(steps: RankSteps, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    mask = np.zeros(steps.step.size, dtype=np.bool_)
    mask[rows] = True
    return mask


def _where(
    recording: Recording, steady: Mapping[int, RankSteps], at: NDArray[np.int64]
) -> tuple[int | None, dict[str, float]]:
    """(the rank that stalls, or None if all or different ranks do; the stalls' seconds in each phase of the slowest)."""
    beyond: dict[int, dict[str, Array]] = {}
    for rank, steps in steady.items():
        phases = split_of(recording, steps, ranks=len(steady)).phases
        order = np.argsort(steps.step, kind="stable")
        row = order[np.clip(np.searchsorted(steps.step[order], at), 0, order.size - 1)]
        here = steps.step[row] == at
        usual = {name: weighted_quantile(phases[name] / steps.count, steps.count, 0.5) for name in OWN_PHASES}
        beyond[rank] = {
            name: np.where(here, np.maximum(0.0, phases[name][row] - usual[name]), 0.0) for name in OWN_PHASES
        }
    totals = {rank: np.sum(list(named.values()), axis=0) for rank, named in beyond.items()}
    ranks = sorted(totals)
    each = np.stack([totals[rank] for rank in ranks])
    first, share = Counter(each.argmax(axis=0).tolist()).most_common(1)[0]
    worst = ranks[int(first)]
    sums = each.sum(axis=1)
    others = np.delete(sums, int(first))
    alone = (
        len(ranks) > 1
        and share / at.size >= _COINCIDING_SHARE_MIN
        and float(np.median(others)) <= 0.5 * sums[int(first)] > 0
    )
    return (worst if alone else None), {name: float(beyond[worst][name].sum()) for name in OWN_PHASES}


def _coincides(steps: RankSteps, member: NDArray[np.bool_], excess: Array, batches: Table | None) -> str:
    """The event that occurs in most of the stalls and hardly elsewhere; empty if there is none. `batches`: made by workers."""
    c = steps.columns
    made = np.zeros(excess.size) if batches is None else _longest_collection_s(steps, batches)
    signs = {
        "an epoch begins": steps.epoch_start,
        "a checkpoint": c["checkpoint"] >= _PAUSE_SHARE_MIN * excess,
        "an evaluation": c["evaluation"] >= _PAUSE_SHARE_MIN * excess,
        "a garbage collection": c["gc"] >= _PAUSE_SHARE_MIN * excess,
        WORKER_COLLECTS: np.minimum(made, c["input_wait"]) >= _PAUSE_SHARE_MIN * excess,
        "waiting for a core": c["run_delay"] >= _PAUSE_SHARE_MIN * excess,
    }
    for name, sign in signs.items():
        if sign[member].mean() >= _COINCIDING_SHARE_MIN and (sign & (excess > 0))[~member].mean() <= 0.1:
            return name
    return ""


def _longest_collection_s(steps: RankSteps, batches: Table) -> Array:
    """Seconds of garbage collections in one batch, the most among the batches that workers were making when each step began."""
    collected = batches[batches["gc_ns"] > 0]
    order = np.argsort(collected["t_start_ns"], kind="stable")
    found = np.zeros(steps.step.size)
    for batch in collected[order][-_COLLECTIONS_MAX:]:
        first = int(np.searchsorted(steps.end_ns, batch["t_start_ns"], side="right"))
        last = int(np.searchsorted(steps.start_ns, batch["t_end_ns"], side="left"))
        found[first:last] = np.maximum(found[first:last], batch["gc_ns"] / 1e9)
    return found


def _works(phases: Mapping[str, Array], member: NDArray[np.bool_], excess: Array) -> bool:
    """True if most stalls are in the model, in both forward and backward: a second network learns, or a penalty is added."""
    beyond = {name: values - float(np.median(values[~member])) for name, values in phases.items()}
    together = np.minimum(beyond["forward"], beyond["backward"]) >= _EACH * excess
    whole = np.sum(list(beyond.values()), axis=0) >= _MODEL * excess
    return bool((together & whole)[member].mean() >= _COINCIDING_SHARE_MIN)


def _flushes(recording: Recording, starts_ns: NDArray[np.int64], ends_ns: NDArray[np.int64]) -> str:
    """Names the disk that is written to during the stalls and hardly at other times; empty if there is none."""
    for (metric, _), series in sorted(recording.samples.items()):
        if metric != "disk.write_bytes" or series.t_ns.size < _DISK_READINGS_MIN * starts_ns.size:
            continue
        seconds = np.maximum(np.diff(series.t_ns) / 1e9, 1e-9)
        rate = np.maximum(0.0, np.diff(series.value)) / seconds / 1e6
        high = rate > max(_FLUSH_MB_PER_S, _FLUSH_WRITE_RATIO * float(np.median(rate)))
        # a reading belongs to a stall in its interval or in the one before: dirty pages are written a little later
        during = np.zeros(rate.size, dtype=np.bool_)
        found = 0
        for start_ns, end_ns in zip(starts_ns, ends_ns, strict=True):
            here = (series.t_ns[1:] > start_ns) & (series.t_ns[:-1] < end_ns)
            here |= np.append(False, here[:-1])
            during |= here
            found += bool((high & here).any())
        inside = (series.t_ns[1:] > starts_ns[0]) & (series.t_ns[:-1] < ends_ns[-1]) & ~during
        elsewhere = float(high[inside].mean()) if inside.any() else 1.0
        if found >= _COINCIDING_SHARE_MIN * starts_ns.size and elsewhere <= 0.1:
            return "a disk flush"
    return ""
