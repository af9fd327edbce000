"""Phases of the step, lateness and GPU readings over the run's time, in a bounded number of equal slices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution, waiting
from rn50_advisor.advisor.analysis.steps.phases import split_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.view.gpu_strips import gpu_strips
from rn50_advisor.advisor.analysis.view.timeline import spread
from rn50_advisor.advisor.model.history import GPU_READINGS, Curve, GpuHistory, History, compared
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.advisor.model.report import INPUT_OR_FORWARD

Array = NDArray[np.float64]

SLICES_MAX = 240
_SLICES_MIN = 60
_VALUES_MAX = 60_000  # of one quantity over all ranks; from 250 ranks on, slices become fewer
_SLICE_S_MIN = 0.25
_BUSY_SHARE_MIN = 0.001  # of a slice: less is rounding


def slice_edges(recording: Recording, steps: Mapping[int, RankSteps]) -> Array:
    """Edges of equal slices from the first step to the end of the recording, in monotonic ns; none shorter than two usual steps."""
    start = min(int(s.start_ns[0]) for s in steps.values())
    end = max(recording.meta.last_ns, *(int(s.end_ns[-1]) for s in steps.values()))
    longest_s = max(float(np.median(s.length / s.count)) for s in steps.values())
    most = max(_SLICES_MIN, min(SLICES_MAX, _VALUES_MAX // len(steps)))
    slices = int(np.clip((end - start) / 1e9 / max(2 * longest_s, _SLICE_S_MIN), 1, most))
    return np.linspace(start, end, slices + 1)


def phases_over_time(
    recording: Recording, steps: Mapping[int, RankSteps], edges_ns: Array
) -> dict[int, dict[str, Array]]:
    """By rank and phase, mean seconds per step in each slice between the edges; NaN in a slice without a step of the rank.

    The phases of a slice sum to the mean step there. `comm_exposed` includes waiting for other ranks, as in the budget of each rank, and is
    absent if the rank's communication was not timed. `input_wait` includes starts of epochs. A step that spans several slices counts in
    each in proportion, so a step of a minute is one of a minute in all of them.
    """
    return {
        rank: {name: _ratio(seconds, totals["steps"], totals["busy"], edges_ns) for name, seconds in phases.items()}
        for rank, (phases, totals) in _sums(recording, steps, edges_ns).items()
    }


def _sums(
    recording: Recording, steps: Mapping[int, RankSteps], edges_ns: Array
) -> dict[int, tuple[dict[str, Array], dict[str, Array]]]:
    """By rank: seconds of each phase in each slice, and the number of steps (`steps`) and their seconds (`busy`) there."""
    found = {}
    start = edges_ns[0]
    for rank, own in steps.items():
        parts = split_of(recording, own, ranks=len(steps))
        rows = {name: values for name, values in parts.phases.items() if values.any()}
        if not own.fed and "forward" in rows:
            rows = {INPUT_OR_FORWARD if name == "forward" else name: values for name, values in rows.items()}
        if parts.exposed is not None:
            rows["comm_exposed"] = parts.exposed
        rest = own.length - sum(rows.values(), np.zeros(own.length.size))
        rows["unattributed"] = np.maximum(rest, 0.0)
        amounts = np.stack([*rows.values(), own.count, own.length])
        *phases, count, busy = np.maximum(
            spread(amounts, (own.start_ns - start) / 1e9, (own.end_ns - start) / 1e9, (edges_ns - start) / 1e9), 0.0
        )
        found[rank] = dict(zip(rows, phases, strict=True)), {"steps": count, "busy": busy}
    return found


def _ratio(seconds: Array, count: Array, busy_s: Array, edges_ns: Array) -> Array:
    """Seconds per step; NaN where there is hardly any step."""
    seen = busy_s >= _BUSY_SHARE_MIN * np.diff(edges_ns) / 1e9
    return np.where(seen & (count > 0), seconds / np.maximum(count, 1e-12), np.nan)


def run_history(
    recording: Recording,
    steps: Mapping[int, RankSteps],
    steady: Mapping[int, RankSteps],
    accounts: StepAttribution | None,
) -> History | None:
    """The run over time; None before the first step."""
    if not steps:
        return None
    edges = slice_edges(recording, steps)
    sums = _sums(recording, steps, edges)
    count = np.sum([totals["steps"] for _, totals in sums.values()], axis=0)
    busy = np.sum([totals["busy"] for _, totals in sums.values()], axis=0)
    names = {name: None for phases, _ in sums.values() for name in phases}
    whole = {name: np.sum([phases[name] for phases, _ in sums.values() if name in phases], axis=0) for name in names}
    made = History(
        start_s=float((edges[0] - recording.meta.started_ns) / 1e9),
        slice_s=float((edges[1] - edges[0]) / 1e9),
        phases={name: _curve(_ratio(seconds, count, busy, edges)) for name, seconds in whole.items() if seconds.any()},
        steps={rank: tuple(totals["steps"].tolist()) for rank, (_, totals) in sums.items()},
        step_s={
            rank: _curve(_ratio(totals["busy"], totals["steps"], totals["busy"], edges))
            for rank, (_, totals) in sums.items()
        },
        late_s={rank: _curve(values) for rank, values in _lateness(sums, steady, accounts, edges).items()},
        gpus=_gpus(recording, edges),
    )
    return compared(made)


def _curve(values: Array) -> Curve:
    return tuple(value if math.isfinite(value) else None for value in values.tolist())


def _lateness(
    sums: Mapping[int, tuple[dict[str, Array], dict[str, Array]]],
    steady: Mapping[int, RankSteps],
    accounts: StepAttribution | None,
    edges: Array,
) -> dict[int, Array]:
    """By rank, seconds per step that it comes later to the collectives than the middle rank; of two ranks, than the other.

    Exact where steps are matched one by one. Where they are folded, the mean waits of the ranks are compared: who waits less came later.
    Ranks that take turns in being late do not show there.
    """
    if len(sums) < 2 or not all("comm_exposed" in phases for phases, _ in sums.values()):
        return {}
    ranks = sorted(sums)
    waits = np.stack(
        [_ratio(sums[r][0]["comm_exposed"], sums[r][1]["steps"], sums[r][1]["busy"], edges) for r in ranks]
    )
    others = waits.max(axis=0) if len(ranks) == 2 else np.median(waits, axis=0)
    late = np.maximum(others - waits, 0.0)
    if accounts is not None and sorted(accounts.turns) == ranks:
        _put_matched(late, steady, accounts, edges)
    return dict(zip(ranks, late, strict=True))


def _put_matched(late: Array, steady: Mapping[int, RankSteps], accounts: StepAttribution, edges: Array) -> None:
    """Replaces the lateness in slices that have matched steps by the mean wait for each rank in those."""
    ranks = sorted(accounts.turns)
    turns = np.stack([accounts.turns[rank] for rank in ranks])[:, 1:]  # the first turn begins in an unknown step
    if turns.shape[1] == 0:
        return
    ends = steady[ranks[0]].end_ns[accounts.rows[ranks[0]]][1:]
    slot = np.clip(np.searchsorted(edges, ends, side="left") - 1, 0, edges.size - 2)
    kept, seen = np.zeros(late.shape), np.bincount(slot, minlength=late.shape[1])
    np.add.at(kept, (turns.argmax(axis=0), slot), waiting(turns))
    late[:, seen > 0] = kept[:, seen > 0] / seen[seen > 0]


def _gpus(recording: Recording, edges: Array) -> tuple[GpuHistory, ...]:
    found = []
    for strip in gpu_strips(recording):
        read = {}
        for name in GPU_READINGS:
            series = recording.samples.get((f"gpu.{name}", f"gpu:{strip.index}"))
            if series is not None and series.value.size:
                read[name] = _curve(_means(series, edges))
        found.append(
            GpuHistory(strip.index, **{n: curve for n, curve in read.items() if any(v is not None for v in curve)})
        )
    return tuple(found)


def _means(series: Series, edges: Array) -> Array:
    """The mean reading of each slice. A slice between two readings has the earlier one; the last one holds as long as a usual one."""
    slot = np.searchsorted(edges, series.t_ns, side="right") - 1
    inside = (slot >= 0) & (slot < edges.size - 1)
    sums = np.bincount(slot[inside], series.value[inside], minlength=edges.size - 1)
    seen = np.bincount(slot[inside], minlength=edges.size - 1)
    before = np.searchsorted(series.t_ns, edges[:-1], side="right") - 1
    usual_ns = float(np.median(np.diff(series.t_ns))) if series.t_ns.size > 1 else 0.0
    holds = (before >= 0) & (edges[:-1] <= series.t_ns[-1] + usual_ns)
    return np.where(seen > 0, sums / np.maximum(seen, 1), np.where(holds, series.value[np.maximum(before, 0)], np.nan))


# What a live screen has seen before; it reads only the latest steps.
def joined(earlier: History | None, later: History | None) -> History | None:
    """`later`, preceded by the time to which only `earlier` reaches back; slices double in length when there are SLICES_MAX."""
    if later is None or earlier is None or earlier.start_s >= later.start_s - 1e-6:
        return later or earlier
    slice_s = earlier.slice_s
    while (later.end_s - earlier.start_s) / slice_s > SLICES_MAX:
        slice_s *= 2
    count = max(1, math.ceil((later.end_s - earlier.start_s) / slice_s - 1e-6))
    edges = earlier.start_s + slice_s * np.arange(count + 1, dtype=np.float64)
    shares = _overlap(earlier, edges, later.start_s), _overlap(later, edges, math.inf)
    weights = _all_steps(earlier), _all_steps(later)
    gpus = [{gpu.index: gpu for gpu in part.gpus} for part in (earlier, later)]

    def of_ranks(name: str) -> dict[int, Curve]:
        old, new = getattr(earlier, name), getattr(later, name)
        return {
            rank: _blend(
                (old.get(rank, ()), new.get(rank, ())), (earlier.steps.get(rank), later.steps.get(rank)), shares
            )
            for rank in sorted({*old, *new})
        }

    both = replace(
        later,
        start_s=earlier.start_s,
        slice_s=slice_s,
        phases={
            name: _blend((earlier.phases.get(name, ()), later.phases.get(name, ())), weights, shares)
            for name in {**later.phases, **earlier.phases}
        },
        steps={
            rank: tuple(sum(s @ np.asarray(c) for s, c in _both(shares, earlier, later, rank)).tolist())
            for rank in sorted({*earlier.steps, *later.steps})
        },
        step_s=of_ranks("step_s"),
        late_s=of_ranks("late_s"),
        gpus=tuple(
            GpuHistory(i, **_blended([part.get(i) for part in gpus], shares)) for i in sorted({*gpus[0], *gpus[1]})
        ),
    )
    return compared(both)


def _both(shares: tuple[Array, Array], earlier: History, later: History, rank: int) -> list[tuple[Array, Any]]:
    parts = zip(shares, (earlier.steps.get(rank), later.steps.get(rank)), strict=True)
    return [(share, counts) for share, counts in parts if counts is not None]


def _blended(gpus: Sequence[GpuHistory | None], shares: tuple[Array, Array]) -> dict[str, Curve]:
    curves = {n: _blend((getattr(gpus[0], n, ()), getattr(gpus[1], n, ())), (None, None), shares) for n in GPU_READINGS}
    return {name: curve for name, curve in curves.items() if any(value is not None for value in curve)}


def _overlap(part: History, edges_s: Array, until_s: float) -> Array:
    """Share of each slice of `part` (columns), as far as it lies before `until_s`, in each slice between the edges (rows)."""
    begin = part.start_s + part.slice_s * np.arange(part.slices)
    end = np.minimum(begin + part.slice_s, until_s)
    low, high = edges_s[:-1, None], edges_s[1:, None]
    return np.asarray(np.maximum(0.0, np.minimum(end, high) - np.maximum(begin, low)) / part.slice_s)


def _all_steps(part: History) -> tuple[float, ...]:
    return tuple(np.sum(list(part.steps.values()), axis=0).tolist())


def _blend(
    curves: tuple[Curve, Curve],
    weights: tuple[Sequence[float] | None, Sequence[float] | None],
    shares: tuple[Array, Array],
) -> Curve:
    sums, totals = np.zeros(shares[0].shape[0]), np.zeros(shares[0].shape[0])
    for curve, weight, share in zip(curves, weights, shares, strict=True):
        if curve:
            values = np.array([math.nan if value is None else value for value in curve])
            heavy = np.where(np.isfinite(values), 1.0 if weight is None else np.asarray(weight), 0.0)
            sums += share @ (np.nan_to_num(values) * heavy)
            totals += share @ heavy
    return _curve(np.where(totals > 1e-9, sums / np.maximum(totals, 1e-12), math.nan))
