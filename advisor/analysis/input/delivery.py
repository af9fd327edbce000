"""From the worker to the training loop: which batch a fetch waited for, whether it was made by then, and whether later ones were.

Workers take turns: of N workers, worker w makes batches w, w+N, w+2N ... of an epoch, and a loader hands them out in that order. So a
worker's own count tells which step a batch was made for. Two things must then hold, or nothing is said: no batch reaches its step before it
was made, and none was begun before its index was sent, N * prefetch_factor batches ahead.

A step of one batch begins with its fetch. Of steps that gather several, the recorder notes each fetch where it reads CPU clocks anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.loading import training_batches
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.statistics import relative_error
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH, SPAN_CODE, SPAN_FIELDS

Array = NDArray[np.float64]

_ORDERED = 0.98  # of the fetches: a mark between two clocks may be late now and then, another order fails everywhere
_LEAST = 20  # matched fetches; fewer are an anecdote
_LEAST_OF_WORKER = 8  # batches, to be compared with the others
_ERRORS = 3  # standard errors: of many workers one is slowest by chance
_SLACK_S = 0.001
_MOST = 0.5
_EVER_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Delivery:
    """Seconds per fetch, over the steady ones whose batch is known."""

    fetches: int
    making_s: float  # the batch was still being made
    hand_over_s: float  # it was made, and not yet here
    hand_over_error: float  # two standard errors of it, relative
    behind_s: float  # of `making_s`: a later batch was made already
    worker_lag: (
        float  # what the slowest worker's batches take over those of the others, at least; 1 where all are alike
    )
    slow_ratio: float  # what batches that kept later ones waiting took, over the median; 1 where there were none


@dataclass(frozen=True, slots=True)
class _Fetches:
    """One row a fetch of one batch: which of which epoch, begin and end in seconds; its index was not sent before `sent` (NaN: unknown)."""

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
    missing: dict[str, str],
) -> dict[tuple[str, str], float]:
    """How batches reached the training loop, of every rank with workers; `drawn`: seconds of a step for the next ones' indices."""
    found: dict[tuple[str, str], float] = {}
    for rank, steps in steady.items():
        scope, loader = f"rank:{rank}", training_loader(loaders, rank)
        found["step.batches", scope] = batches = steps.per_step("micro_batches")
        found.update({(name, scope): value for name, value in _parts(recording, steps, loader).items()})
        table = recording.batches.get(rank)
        if loader is None or not loader.num_workers or table is None:
            continue
        made = delivery(everything[rank], steps, table, loader, recording.spans.get(rank))
        if isinstance(made, str):
            missing["fetch.hand_over_s"] = missing["fetch.behind_s"] = made
            continue
        # the indices of a later batch are drawn before this one is handed out
        index_s = drawn.get(rank, 0.0) / max(batches, 1e-3)
        left_s = max(0.0, made.hand_over_s - index_s)
        found["fetch.hand_over_s", scope] = left_s
        found["fetch.hand_over_error", scope] = min(1.0, made.hand_over_error * made.hand_over_s / max(left_s, 1e-9))
        found["fetch.behind_s", scope] = batches * made.behind_s
        found["fetch.slow_ratio", scope] = made.slow_ratio
        found["fetch.worker_lag", scope] = made.worker_lag
    return found


def delivery(
    everything: RankSteps, steady: RankSteps, batches: Table, loader: LoaderFacts, spans: Table | None = None
) -> Delivery | str:
    """One rank's; a string says why it cannot be told."""
    rows = batches[batches["loader"] == loader.id]
    starts = np.flatnonzero(everything.epoch_start)
    if rows.size == 0:
        return "no batch was seen being made"
    if starts.size == 0:
        return "no epoch began within the steps at hand: which batch was made for which cannot be counted"
    first_step = int(everything.step[0])
    # some do nevertheless: a loop that looks a batch ahead (accelerate, Lightning) takes two in its first step
    if (everything.columns["micro_batches"] > 1.5 * everything.count).mean() > _MOST:
        noted, begun = (_told(spans, label, loader) for label in ("fetch", "loader_start"))
        if not noted.size or loader.beside:
            return "steps of several batches: how long each fetch took was not noted"
        before = np.array([] if first_step else [_EVER_NS], np.int64)  # workers start before the first step does
        opened = np.concatenate([before, begun["t_start_ns"]])
        epoch, place = _numbered_from(opened, rows, loader)
        fetches = _noted(everything, noted, opened, loader)
    else:
        epoch, place = _numbered(everything, starts, rows, loader, from_the_begin=first_step == 0)
        fetches = _fetches(everything, starts, loader)
    made_from, done = (_lookup(fetches, epoch, place, rows[name]) for name in ("t_start_ns", "t_end_ns"))
    if not _in_order(fetches, made_from, done):
        return "batches did not come in the order of their making (in_order=False, or a sampler of its own)"
    later = _earliest_later(fetches, epoch, place, rows["t_end_ns"])
    use = ~np.isnan(done) & (fetches.begin >= steady.start_ns[0] / 1e9) & (fetches.begin <= steady.end_ns[-1] / 1e9)
    if use.sum() < _LEAST:
        return f"only {use.sum()} fetches could be told apart"
    found = _delivery(fetches, use, done, later, done - made_from)
    return replace(found, worker_lag=_worker_lag(rows[(rows["flags"] & FLAG_FIRST_BATCH) == 0]))


def _parts(recording: Recording, steps: RankSteps, loader: LoaderFacts | None) -> dict[str, float]:
    """What sending and pinning a batch take, where that was timed: each alone, be it beside the loop's computing."""
    found = {}
    sending = training_batches(recording, steps, loader)["sending_ns"]
    pins = _told(recording.spans.get(steps.rank), "pin", loader)
    pins = pins[(pins["t_end_ns"] > steps.start_ns[0]) & (pins["t_end_ns"] <= steps.end_ns[-1])]
    if (sending > 0).any():
        found["fetch.sending_s"] = float(sending[sending >= 0].mean()) / 1e9
    if pins.size:
        found["fetch.pinning_s"] = float((pins["t_end_ns"] - pins["t_start_ns"]).sum() / pins["count"].sum()) / 1e9
    return found


def known_parts(of: Callable[[str, int | None], float | None], rank: int) -> str:
    """The parts of a batch's way that were timed by themselves, to stand behind the whole of it; empty where none was."""
    parts = (
        ("collating {} ms (part of the making)", of("batch.collate_s", None)),
        ("sending {} ms of its worker's CPU", of("fetch.sending_s", rank)),
        ("pinning {} ms", of("fetch.pinning_s", rank)),
    )
    told = [words.format(f"{1e3 * seconds:.2g}") for words, seconds in parts if seconds]
    return f"; timed apart: {', '.join(told)}" if told else ""


def _worker_lag(rows: Table) -> float:
    took = (rows["t_end_ns"] - rows["t_start_ns"] - rows["run_delay_ns"]) / 1e9
    made = [part for w in np.unique(rows["worker"]) if (part := took[rows["worker"] == w]).size >= _LEAST_OF_WORKER]
    if len(made) < 2:
        return 1.0
    slow = max(range(len(made)), key=lambda n: made[n].mean())
    others = np.concatenate([part for n, part in enumerate(made) if n != slow])
    at_least, at_most = (
        part.mean() + side * _ERRORS * part.std() / np.sqrt(part.size) for side, part in ((-1, made[slow]), (1, others))
    )
    return max(1.0, float(at_least / max(at_most, 1e-9)))


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
        worker_lag=1.0,
        slow_ratio=max(1.0, slow / max(float(np.median(took[use])), 1e-9)),
    )


def _numbered(
    steps: RankSteps, starts: NDArray[np.intp], rows: Table, loader: LoaderFacts, *, from_the_begin: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of every batch the epoch and its place in it; epoch -1 where that cannot be known."""
    opened = steps.start_ns[starts].copy()
    if from_the_begin and starts[0] == 0:
        opened[0] = _EVER_NS  # workers start before the first step does
    # all batches of an epoch are there before its last fetch ends, none of the next is begun before its first step
    epoch = np.searchsorted(opened, rows["t_start_ns"], side="right") - 1
    workers = loader.num_workers
    number = rows["number"].astype(np.int64)
    if loader.lives_on:  # such a worker goes on counting
        if not from_the_begin or starts[0] != 0:
            return np.full(rows.size, -1), number
        fed = np.add.reduceat(steps.columns["micro_batches"], starts)
        share = np.ceil(np.maximum(0, fed[:, None] - np.arange(workers)) / workers).astype(np.int64)
        before = np.vstack([np.zeros((1, workers), np.int64), np.cumsum(share, axis=0)])
        number = number - before[np.maximum(epoch, 0), rows["worker"] % workers]
    return epoch, rows["worker"] + number * workers


def _numbered_from(
    opened: NDArray[np.int64], rows: Table, loader: LoaderFacts
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As `_numbered`, where it is known when the iterator of each epoch was made: an epoch may begin amid a step of several batches."""
    epoch = np.searchsorted(opened, rows["t_start_ns"], side="right") - 1
    worker, number = rows["worker"] % loader.num_workers, rows["number"].astype(np.int64)
    if loader.lives_on:
        first = np.full((opened.size + 1, loader.num_workers), number.max())
        np.minimum.at(first, (epoch, worker), number)
        number = number - first[epoch, worker]
    return epoch, rows["worker"] + number * loader.num_workers


def _fetches(steps: RankSteps, starts: NDArray[np.intp], loader: LoaderFacts) -> _Fetches:
    """A step begins with its fetch. Those that open an epoch are left out, and rows of several steps."""
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
    """Those of steps that gather several; an index was sent no earlier than the step began in which so many fetches before were made."""
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
    """Batches whose indices are with the workers."""
    return loader.num_workers * (loader.prefetch_factor or 2)


def _told(spans: Table | None, label: str, loader: LoaderFacts | None) -> Table:
    """In order of their begin; of all loaders where nobody knows which."""
    if spans is None:
        return np.empty(0, [(name, np.int64) for name in SPAN_FIELDS])
    rows = spans[spans["label"] == SPAN_CODE[label]]
    rows = rows if loader is None else rows[rows["site"] == loader.id]
    return np.asarray(rows[np.argsort(rows["t_start_ns"], kind="stable")])


def _keys(epoch: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray((epoch.astype(np.int64) << 32) + place)


def _lookup(fetches: _Fetches, epoch: NDArray[np.int64], place: NDArray[np.int64], t_ns: NDArray[np.int64]) -> Array:
    """The time of each fetch's batch in seconds; NaN where it is not known."""
    keys, wanted = _keys(epoch, place), _keys(fetches.epoch, fetches.place)
    order = np.argsort(keys, kind="stable")
    at = np.clip(np.searchsorted(keys[order], wanted), 0, keys.size - 1)
    return np.where(keys[order][at] == wanted, t_ns[order][at] / 1e9, np.nan)


def _earliest_later(
    fetches: _Fetches, epoch: NDArray[np.int64], place: NDArray[np.int64], t_end_ns: NDArray[np.int64]
) -> Array:
    """When the first of the later batches of the same epoch was made; infinite after the last one."""
    keys, wanted = _keys(epoch, place), _keys(fetches.epoch, fetches.place)
    order = np.argsort(keys, kind="stable")
    ends = t_end_ns[order] / 1e9
    # batches of a later epoch are made later anyhow
    soonest = np.append(np.minimum.accumulate(ends[::-1])[::-1], np.inf)
    return np.asarray(soonest[np.searchsorted(keys[order], wanted, side="right")])


def _in_order(fetches: _Fetches, begun: Array, done: Array) -> bool:
    known = ~np.isnan(done)
    if not known.any():
        return True
    made_before = done[known] <= fetches.end[known] + _SLACK_S
    told = known & ~np.isnan(fetches.sent)
    begun_after = begun[told] + _SLACK_S >= fetches.sent[told]
    return bool(made_before.mean() >= _ORDERED and (begun_after.size == 0 or begun_after.mean() >= _ORDERED))
