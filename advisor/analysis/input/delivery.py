"""Matches batches from the workers to fetches of the training loop: was a batch ready when its fetch began, and were later ones?

Workers take turns: of N workers, worker w makes batches w, w+N, w+2N ... of an epoch, and a loader hands them out in that order. So a
worker's own count shows which step a batch was made for. The result is used only if two conditions hold: no batch reaches its step before
it was made, and none was begun before its index was sent, N * prefetch_factor batches ahead.

A step of one batch begins with its fetch. In steps of several batches, the recorder notes each fetch whenever it reads CPU clocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.loading import COLLECTIONS_NOTED_MIN, training_batches
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_BEHIND_S,
    FETCH_COLLECTING_S,
    FETCH_HAND_OVER_ERROR,
    FETCH_HAND_OVER_S,
    FETCH_PINNING_S,
    FETCH_SENDING_S,
    FETCH_SLOW_RATIO,
    FETCH_WORKER_LAG,
)
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.statistics import relative_error
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH, SPAN_CODE, SPAN_FIELDS

Array = NDArray[np.float64]

_IN_ORDER_SHARE_MIN = (
    0.98  # of the fetches; a mark between two clocks is late now and then, but a different order fails everywhere
)
_FETCHES_MIN = 20  # matched fetches; fewer show little
_BATCHES_OF_WORKER_MIN = 8  # batches that a worker must have made to be compared with the others
_STANDARD_ERRORS = 3  # margin in standard errors: one of many workers is slowest by chance
_SLACK_S = 0.001
_GATHERING_SHARE_MAX = 0.5
_EVER_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Delivery:
    """Mean seconds per fetch, over the steady fetches whose batch is known."""

    fetches: int
    making_s: float  # the batch was still being made
    hand_over_s: float  # the batch was made but had not arrived
    hand_over_error: float  # two standard errors of `hand_over_s`, relative
    behind_s: float  # part of `making_s` in which a later batch was already made
    collecting_s: float  # part of both that garbage collections in workers took, at most; NaN if not recorded
    worker_lag: float  # least ratio of the slowest worker's time per batch to the others'; 1 if all are alike
    slow_ratio: float  # time of batches that kept later ones waiting, over the median; 1 if there were none


@dataclass(frozen=True, slots=True)
class _Fetches:
    """One row per fetch: epoch, position in it, begin and end in seconds, and the earliest time its index was sent (NaN if unknown)."""

    epoch: NDArray[np.int64]
    place: NDArray[np.int64]
    begin: Array
    end: Array
    sent: Array


def delivery_values(
    recording: Recording,
    everything: Mapping[int, RankSteps],
    steady: Mapping[int, RankSteps],
    loaders: Sequence[LoaderFacts],
    *,
    drawn: Mapping[int, float],
) -> Measured:
    """Delivery measures of every rank with workers. `drawn`: seconds per step spent drawing indices."""
    found = Measured()
    for rank, steps in steady.items():
        loader = training_loader(loaders, rank)
        found[STEP_BATCHES, rank] = batches = steps.per_step("micro_batches")
        found.update({(part, rank): value for part, value in _parts(recording, steps, loader).items()})
        table = recording.batches.get(rank)
        if loader is None or not loader.num_workers or table is None:
            continue
        made = (
            "rank 0 fetches the batches of all ranks at once"
            if loader.dispatches
            else delivery(everything[rank], steps, table, loader, recording.spans.get(rank))
        )
        if isinstance(made, str):
            for measure in (FETCH_HAND_OVER_S, FETCH_BEHIND_S, FETCH_COLLECTING_S):
                found.missing[measure, rank] = made
            continue
        # the indices of a later batch are drawn before this one is handed out
        index_s = drawn.get(rank, 0.0) / max(batches, 1e-3)
        left_s = max(0.0, made.hand_over_s - index_s)
        found[FETCH_HAND_OVER_S, rank] = left_s
        found[FETCH_HAND_OVER_ERROR, rank] = min(1.0, made.hand_over_error * made.hand_over_s / max(left_s, 1e-9))
        found[FETCH_BEHIND_S, rank] = batches * made.behind_s
        if np.isnan(made.collecting_s):
            found.missing[FETCH_COLLECTING_S, rank] = "garbage collections in workers were not recorded"
        else:
            found[FETCH_COLLECTING_S, rank] = batches * made.collecting_s
        found[FETCH_SLOW_RATIO, rank] = made.slow_ratio
        found[FETCH_WORKER_LAG, rank] = made.worker_lag
    return found


def delivery(
    everything: RankSteps, steady: RankSteps, batches: Table, loader: LoaderFacts, spans: Table | None = None
) -> Delivery | str:
    """The delivery of one rank, or the reason why it cannot be determined."""
    rows = batches[batches["loader"] == loader.id]
    starts = np.flatnonzero(everything.epoch_start)
    if rows.size == 0:
        return "no batch was seen being loaded"
    if starts.size == 0:
        return "no epoch began within the measured steps: batches cannot be matched to the steps that used them"
    first_step = int(everything.step[0])
    # A few such steps occur in any case: a loop that looks one batch ahead (accelerate, Lightning) takes two in its first step.
    if (everything.columns["micro_batches"] > 1.5 * everything.count).mean() > _GATHERING_SHARE_MAX:
        noted, begun = (_spans_of(spans, label, loader) for label in ("fetch", "loader_start"))
        if not noted.size or loader.beside:
            return "steps of several batches: the time of each fetch was not recorded"
        before = np.array([] if first_step else [_EVER_NS], np.int64)  # workers start before the first step does
        opened = np.concatenate([before, begun["t_start_ns"]])
        epoch, place = _numbered_from(opened, rows, loader)
        fetches = _noted(everything, noted, opened, loader)
    else:
        epoch, place = _numbered(everything, starts, rows, loader, from_the_start=first_step == 0)
        fetches = _fetches(everything, starts, loader)
    made_from, done = (_lookup(fetches, epoch, place, rows[name]) for name in ("t_start_ns", "t_end_ns"))
    if not _in_order(fetches, made_from, done):
        return "batches did not arrive in the order they were made in (in_order=False, or a custom sampler)"
    later = _earliest_later(fetches, epoch, place, rows["t_end_ns"])
    use = ~np.isnan(done) & (fetches.begin >= steady.start_ns[0] / 1e9) & (fetches.begin <= steady.end_ns[-1] / 1e9)
    if use.sum() < _FETCHES_MIN:
        return f"only {use.sum()} fetches could be separated"
    # the worker makes its next batch while a thread sends this one, which stands still while the worker collects
    collected = [_lookup(fetches, epoch, place - n, rows["gc_ns"]) for n in (0, loader.num_workers)]
    return replace(
        _delivery(fetches, use, done, later, done - made_from),
        worker_lag=_worker_lag(rows[(rows["flags"] & FLAG_FIRST_BATCH) == 0]),
        collecting_s=_collecting_s(fetches, use, done, *collected),
    )


def _parts(recording: Recording, steps: RankSteps, loader: LoaderFacts | None) -> dict[RankMeasure, float]:
    """Mean seconds to send and to pin a batch, if timed. They may overlap with compute."""
    found = {}
    sending = training_batches(recording, steps, loader)["sending_ns"]
    pins = _spans_of(recording.spans.get(steps.rank), "pin", loader)
    pins = pins[(pins["t_end_ns"] > steps.start_ns[0]) & (pins["t_end_ns"] <= steps.end_ns[-1])]
    if (sending > 0).any():
        found[FETCH_SENDING_S] = float(sending[sending >= 0].mean()) / 1e9
    if pins.size:
        found[FETCH_PINNING_S] = float((pins["t_end_ns"] - pins["t_start_ns"]).sum() / pins["count"].sum()) / 1e9
    return found


def _worker_lag(rows: Table) -> float:
    took = (rows["t_end_ns"] - rows["t_start_ns"] - rows["run_delay_ns"]) / 1e9
    made = [
        part for w in np.unique(rows["worker"]) if (part := took[rows["worker"] == w]).size >= _BATCHES_OF_WORKER_MIN
    ]
    if len(made) < 2:
        return 1.0
    slow = max(range(len(made)), key=lambda n: made[n].mean())
    others = np.concatenate([part for n, part in enumerate(made) if n != slow])
    at_least, at_most = (
        part.mean() + side * _STANDARD_ERRORS * part.std() / np.sqrt(part.size)
        for side, part in ((-1, made[slow]), (1, others))
    )
    return max(1.0, float(at_least / max(at_most, 1e-9)))


def _collecting_s(fetches: _Fetches, use: NDArray[np.bool_], done: Array, within: Array, afterwards: Array) -> float:
    """Mean seconds per fetch. `within`: collections while its batch was made; `afterwards`: while its worker's next batch was.

    Each is the mean over the fetches for which it was noted; NaN if there are few.
    """
    begin, end, made = fetches.begin[use], fetches.end[use], np.minimum(done[use], fetches.end[use])
    making, handing_over = np.clip(made - begin, 0.0, None), end - np.maximum(begin, made)
    noted = [(wait, seconds[use]) for wait, seconds in ((making, within), (handing_over, afterwards))]
    if any((seconds >= 0).sum() < COLLECTIONS_NOTED_MIN for _, seconds in noted):
        return math.nan
    return float(sum(np.minimum(wait, seconds)[seconds >= 0].mean() for wait, seconds in noted))


def _delivery(fetches: _Fetches, use: NDArray[np.bool_], done: Array, later: Array, took: Array) -> Delivery:
    begin, end, made = fetches.begin[use], fetches.end[use], np.minimum(done[use], fetches.end[use])
    behind = np.clip(made - np.maximum(begin, later[use]), 0.0, None)
    slow = float((behind * took[use]).sum() / behind.sum()) if behind.sum() > 0 else 0.0
    handing_over = end - np.maximum(begin, made)
    return Delivery(
        fetches=int(use.sum()),
        making_s=float(np.clip(made - begin, 0.0, None).mean()),
        hand_over_s=float(handing_over.mean()),
        hand_over_error=relative_error(handing_over),
        behind_s=float(behind.mean()),
        collecting_s=np.nan,
        worker_lag=1.0,
        slow_ratio=max(1.0, slow / max(float(np.median(took[use])), 1e-9)),
    )


def _numbered(
    steps: RankSteps, starts: NDArray[np.intp], rows: Table, loader: LoaderFacts, *, from_the_start: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Epoch of every batch and its position there; epoch -1 if unknown."""
    opened = steps.start_ns[starts].copy()
    if from_the_start and starts[0] == 0:
        opened[0] = _EVER_NS  # workers start before the first step does
    # all batches of an epoch are made before its last fetch ends; none of the next epoch is begun before that epoch's first step
    epoch = np.searchsorted(opened, rows["t_start_ns"], side="right") - 1
    workers = loader.num_workers
    number = rows["number"].astype(np.int64)
    if loader.lives_on:  # a persistent worker keeps counting across epochs
        if not from_the_start or starts[0] != 0:
            return np.full(rows.size, -1), number
        fed = np.add.reduceat(steps.columns["micro_batches"], starts)
        share = np.ceil(np.maximum(0, fed[:, None] - np.arange(workers)) / workers).astype(np.int64)
        before = np.vstack([np.zeros((1, workers), np.int64), np.cumsum(share, axis=0)])
        number = number - before[np.maximum(epoch, 0), rows["worker"] % workers]
    return epoch, rows["worker"] + number * workers


def _numbered_from(
    opened: NDArray[np.int64], rows: Table, loader: LoaderFacts
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Like `_numbered`, from the times when each epoch's iterator was made: an epoch may begin within a step of several batches."""
    epoch = np.searchsorted(opened, rows["t_start_ns"], side="right") - 1
    worker, number = rows["worker"] % loader.num_workers, rows["number"].astype(np.int64)
    if loader.lives_on:
        first = np.full((opened.size + 1, loader.num_workers), number.max())
        np.minimum.at(first, (epoch, worker), number)
        number = number - first[epoch, worker]
    return epoch, rows["worker"] + number * loader.num_workers


def _fetches(steps: RankSteps, starts: NDArray[np.intp], loader: LoaderFacts) -> _Fetches:
    """Fetches of steps of one batch: such a step begins with its fetch. Leaves out first steps of epochs and rows of several steps."""
    fed = steps.columns["micro_batches"]
    before = np.cumsum(fed) - fed
    epoch = np.cumsum(steps.epoch_start) - 1
    place = before - before[starts[np.maximum(epoch, 0)]]
    use = (epoch >= 0) & steps.sample & (fed == 1) & ~steps.epoch_start
    begin = steps.start_ns[use] / 1e9
    epoch, place = epoch[use], place[use].astype(np.int64)
    at, ahead = {key: i for i, key in enumerate(_keys(epoch, place).tolist())}, _ahead(loader)
    sent = np.array([at.get(key, -1) for key in _keys(epoch, place - ahead).tolist()], np.int64)
    sent_s = np.where((sent >= 0) & (place >= ahead), begin[sent], np.nan)
    return _Fetches(epoch, place, begin, begin + steps.columns["input_wait"][use], sent_s)


def _noted(steps: RankSteps, noted: Table, opened: NDArray[np.int64], loader: LoaderFacts) -> _Fetches:
    """Fetches of steps that take several batches. A batch's index was sent no earlier than the begin of the step that fetched `_ahead`
    batches before it.
    """
    fed, ahead = steps.columns["micro_batches"], _ahead(loader)
    before = np.cumsum(fed) - fed
    _, first, of_step = np.unique(noted["step"], return_index=True, return_inverse=True)
    row = np.maximum(np.searchsorted(steps.step, noted["step"], side="right") - 1, 0)
    at = np.searchsorted(before, before[row] + np.arange(noted.size) - first[of_step] - ahead, side="right") - 1
    known = (steps.step[row] == noted["step"]) & (steps.count[row] == 1) & (noted["count"] >= ahead) & (at >= 0)
    sent = np.where(known, steps.start_ns[at] / 1e9, np.nan)
    epoch = np.searchsorted(opened, noted["t_start_ns"], side="right") - 1
    use = (epoch >= 0) & (noted["count"] > 0)
    begin, end = noted["t_start_ns"][use] / 1e9, noted["t_end_ns"][use] / 1e9
    return _Fetches(epoch[use], noted["count"][use], begin, end, sent[use])


def _ahead(loader: LoaderFacts) -> int:
    """Number of batches whose indices are sent ahead to the workers."""
    return loader.num_workers * (loader.prefetch_factor or 2)


def _spans_of(spans: Table | None, label: str, loader: LoaderFacts | None) -> Table:
    """The spans of one label, sorted by start: those of this loader, or of all loaders if it is unknown."""
    if spans is None:
        return np.empty(0, [(name, np.int64) for name in SPAN_FIELDS])
    rows = spans[spans["label"] == SPAN_CODE[label]]
    rows = rows if loader is None else rows[rows["site"] == loader.id]
    return np.asarray(rows[np.argsort(rows["t_start_ns"], kind="stable")])


def _keys(epoch: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray((epoch.astype(np.int64) << 32) + place)


def _lookup(fetches: _Fetches, epoch: NDArray[np.int64], place: NDArray[np.int64], t_ns: NDArray[np.int64]) -> Array:
    """The time `t_ns` of each fetch's batch, in seconds; NaN if unknown."""
    keys, wanted = _keys(epoch, place), _keys(fetches.epoch, fetches.place)
    order = np.argsort(keys, kind="stable")
    at = np.clip(np.searchsorted(keys[order], wanted), 0, keys.size - 1)
    return np.where(keys[order][at] == wanted, t_ns[order][at] / 1e9, np.nan)


def _earliest_later(
    fetches: _Fetches, epoch: NDArray[np.int64], place: NDArray[np.int64], t_end_ns: NDArray[np.int64]
) -> Array:
    """Time at which the first later batch was made, in seconds; infinite if there is none."""
    keys, wanted = _keys(epoch, place), _keys(fetches.epoch, fetches.place)
    order = np.argsort(keys, kind="stable")
    ends = t_end_ns[order] / 1e9
    # batches of later epochs may be included: they are made later anyway
    soonest = np.append(np.minimum.accumulate(ends[::-1])[::-1], np.inf)
    return np.asarray(soonest[np.searchsorted(keys[order], wanted, side="right")])


def _in_order(fetches: _Fetches, begun: Array, done: Array) -> bool:
    known = ~np.isnan(done)
    if not known.any():
        return True
    made_before = done[known] <= fetches.end[known] + _SLACK_S
    timed = known & ~np.isnan(fetches.sent)
    begun_after = begun[timed] + _SLACK_S >= fetches.sent[timed]
    return bool(
        made_before.mean() >= _IN_ORDER_SHARE_MIN
        and (begun_after.size == 0 or begun_after.mean() >= _IN_ORDER_SHARE_MIN)
    )
