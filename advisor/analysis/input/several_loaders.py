"""Finds which of several loaders that feed one step (labelled and unlabelled images, two domains) the step waits for.

A step records how many batches it took, how long it waited for all of them, and the loader of the last one. The rest
follows from the workers: the loaders work concurrently, and the step waits for the one that needs longest for its
share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rn50_advisor.advisor.analysis.input.loading import training_batches
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts
from rn50_advisor.advisor.model.recording import Recording, Table

_BATCHES_A_STEP_MIN = 1.5  # batches per step; a loop that looks one batch ahead still takes one per step
_LAST_SHARE_MAX = 0.05  # of the steps; a loader that comes last in more of them feeds other steps, not the same ones
_TIME_SHARE_MIN = 0.5  # of the steps' time; a loader that made batches ahead for a later stage covers less


def with_dispatched(
    steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts], *, ranks: int
) -> tuple[LoaderFacts, ...]:
    """The same loaders. Of those whose batches rank 0 sends to all ranks, rank 0's has the batches that it loads in each step."""
    requests = max(steady[0].per_step("micro_batches"), 1e-3) if 0 in steady else 1.0
    return tuple(
        replace(loader, per_step=requests * (1 if loader.split_batches else ranks))
        if loader.dispatches and loader.rank == 0
        else loader
        for loader in loaders
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """One loader's part in a step."""

    loader: LoaderFacts
    batches: float
    took_s: float  # seconds to make these batches, per lane


def with_slowest(
    recording: Recording, steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]
) -> tuple[LoaderFacts, ...]:
    """The same loaders. Of loaders that feed steps together, the one that the steps wait for is marked."""
    marked = {}
    for rank, steps in steady.items():
        if steps.per_step("micro_batches") >= _BATCHES_A_STEP_MIN:
            own = [loader for loader in loaders if loader.rank == rank and loader.training and not loader.library]
            slowest = _slowest(recording, steps, own)
            if slowest is not None:
                marked[rank, slowest.id] = slowest
    return tuple(marked.get((loader.rank, loader.id), loader) for loader in loaders)


def _slowest(recording: Recording, steps: RankSteps, loaders: Sequence[LoaderFacts]) -> LoaderFacts | None:
    """The loader that the steps wait for; None if one loader feeds them, or several one after the other."""
    last = steps.columns["loader"][steps.sample]
    if last.size == 0:
        return None  # rows of several steps do not show which loader came last in each
    named = {loader.id: float((last == loader.id).mean()) for loader in loaders}
    first = max(loaders, key=lambda loader: named[loader.id], default=None)
    if first is None or not named[first.id]:
        return None
    beside = [loader for loader in loaders if loader is first or named[loader.id] < _LAST_SHARE_MAX]
    shares = _in_process(steps, beside)
    fetched = steps.per_step("micro_batches") - sum(share.batches for share in shares)
    tables = [(loader, rows) for loader in beside if (rows := _lasting(recording, steps, loader)).size]
    total = sum(rows.size for _, rows in tables)
    for loader, rows in tables:
        # a long run keeps only part of the batches, the same part for all workers
        batches = max(0.0, fetched) * rows.size / total
        took_s = float(np.mean(rows["t_end_ns"] - rows["t_start_ns"])) / 1e9
        shares.append(_Share(loader, batches, batches * took_s / loader.num_workers))
    if len(shares) < 2:
        return None
    slowest = max(shares, key=lambda share: share.took_s)
    return replace(slowest.loader, per_step=slowest.batches, beside=len(shares) - 1)


def _in_process(steps: RankSteps, loaders: Sequence[LoaderFacts]) -> list[_Share]:
    """The share of loaders without workers, from fetches of clocked steps. They count as one: they make batches one after the other."""
    timed = steps.columns["fetches"] > 0
    own = [loader for loader in loaders if not loader.num_workers]
    if not own or not timed.any():
        return []
    batches, took_s = (
        float(steps.columns[name][timed].sum() / steps.count[timed].sum()) for name in ("fetches", "fetch")
    )
    return [_Share(own[-1], batches, took_s)]


def _lasting(recording: Recording, steps: RankSteps, loader: LoaderFacts) -> Table:
    """Batches that the loader's workers made, if they did so for most of these steps."""
    rows = training_batches(recording, steps, loader)
    rows = rows[(rows["loader"] == loader.id) & (loader.num_workers > 0)]
    window_ns = int(steps.end_ns.max() - steps.start_ns.min())
    lasted = rows.size and np.ptp(rows["t_end_ns"]) >= _TIME_SHARE_MIN * window_ns
    return np.asarray(rows if lasted else rows[:0])
