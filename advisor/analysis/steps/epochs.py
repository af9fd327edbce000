"""Measures the cost of starting an epoch (ending workers, starting new ones, their first batch) and of a cold first epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.input.loading import made_for
from rn50_advisor.advisor.analysis.steps.cold_start import cold_epoch
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_COLD_LATER_READ_MB,
    EPOCH_COLD_LATER_WAIT_S,
    EPOCH_COLD_READ_MB,
    EPOCH_COLD_STEP_S,
    EPOCH_COLD_STEPS,
    EPOCH_COLD_WAIT_S,
    EPOCH_FIRST_BATCH_S,
    EPOCH_INDEX_S,
    EPOCH_START_COMPUTE_S,
    EPOCH_START_S,
    EPOCH_STARTS,
    EPOCH_STEPS,
    STEP_EVALUATION_START_S,
)
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH, SPAN_CODE

_BLOCK_BYTES = 512
# After workers are forked, each page that the training process writes to is copied first, and the new workers fill their queues on the
# cores that it computes on. Measured on two cores: 28 ms more in the first step, then 4, 2, 2, 1 and 0.3 ms; without forks 4 and 0 ms.
_ECHO_STEPS = 5


def epoch_values(recording: Recording, steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]) -> Measured:
    """`epoch.*` of every rank, over the epochs that began within the steady steps. Without any, only counts are given."""
    found = Measured()
    for rank, steps in steady.items():
        if not steps.fed:
            continue
        single = steps.sample
        found[EPOCH_STEPS, rank] = float(single.sum()) / max(1.0, float((single & steps.epoch_start).sum()))
        starts = steps.keep(steps.epoch_start & (steps.count == 1))
        found[EPOCH_STARTS, rank] = float(starts.step.size)
        if starts.step.size == 0:
            continue
        loader = training_loader(loaders, rank)
        beyond = starts.columns["input_wait"] - _usual_wait_s(steps, loader)
        found[EPOCH_START_S, rank] = max(0.0, float(beyond.mean()))
        # with several ranks, the backward includes waiting for the others
        compute = ("forward", "backward") if len(steady) == 1 else ("forward",)
        found[EPOCH_START_COMPUTE_S, rank] = max(0.0, _slower_at_start_s(steps, compute))
        first = _first_batches(recording.batches.get(rank), starts, loader)
        if first is not None:
            found[EPOCH_FIRST_BATCH_S, rank] = float((first["t_end_ns"] - first["t_start_ns"]).mean() / 1e9)
            found[EPOCH_INDEX_S, rank] = _index_s(recording.spans.get(rank), starts, first, loader)
    return found


def _usual_wait_s(steps: RankSteps, loader: LoaderFacts | None) -> float:
    """Seconds that a usual fetch waits. If every step begins an epoch: 0 with workers, which would have it ready; else the mean wait."""
    if not steps.epoch_start.all():
        return steps.keep(~steps.epoch_start).per_step("input_wait")
    return 0.0 if loader is not None and loader.num_workers else steps.per_step("input_wait")


def _slower_at_start_s(steps: RankSteps, compute: Sequence[str]) -> float:
    """Seconds per epoch by which the compute of its first steps exceeds that of its second half."""
    work = np.asarray(sum(steps.columns[name] for name in compute), np.float64)
    row = np.arange(work.size)
    begun = np.maximum.accumulate(np.where(steps.epoch_start, row, -1))
    since = np.where((begun >= 0) & (steps.count == 1), row - begun, -1)
    length = int(np.median(np.diff(np.append(np.flatnonzero(steps.epoch_start), work.size))))
    half = max(1, length // 2)
    settled = work[since >= half]
    if settled.size == 0:
        return 0.0
    usual = float(np.median(settled))
    firsts = (work[since == nth] for nth in range(min(1 + _ECHO_STEPS, half)))
    return sum(float(np.median(first)) - usual for first in firsts if first.size)


def _first_batches(table: Table | None, starts: RankSteps, loader: LoaderFacts | None) -> Table | None:
    """The first batch of each worker that started in these steps."""
    if table is None or table.size == 0:
        return None
    rows = table[(table["flags"] & FLAG_FIRST_BATCH) != 0]
    rows = made_for(rows, loader)
    rows = rows[_within(starts, rows["t_start_ns"], rows["t_start_ns"]) >= 0]
    return rows if rows.size else None


def _index_s(spans: Table | None, starts: RankSteps, first: Table, loader: LoaderFacts | None) -> float:
    """Seconds per epoch start to make the iterator after the last worker has started. The sampler's order is drawn in this time."""
    if spans is None:
        return 0.0
    rows = spans[spans["label"] == SPAN_CODE["loader_start"]]
    if loader is not None:
        rows = rows[(rows["site"] == loader.id) | (rows["site"] < 0)]
    expected = loader.num_workers if loader is not None else 1
    born = first["t_start_ns"] - first["wait_ns"]
    at, made_at = _within(starts, born, born), _within(starts, rows["t_start_ns"], rows["t_end_ns"])
    stood, made = (np.zeros(starts.step.size, np.int64) for _ in range(2))
    np.maximum.at(stood, at[at >= 0], born[at >= 0])
    np.maximum.at(made, made_at[made_at >= 0], rows["t_end_ns"][made_at >= 0])
    # in an epoch of few batches not every worker makes one: when the others had started is unknown
    known = np.bincount(at[at >= 0], minlength=starts.step.size) >= max(1, expected)
    total = np.maximum(0, made - stood)[known].sum()
    return float(total) / 1e9 / starts.step.size


def _within(steps: RankSteps, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """Row of the step that contains each interval; -1 if none does."""
    at = np.searchsorted(steps.start_ns, begin_ns, side="right") - 1
    return np.where((at >= 0) & (end_ns <= steps.end_ns[np.maximum(at, 0)]), at, -1)


def evaluation_start_values(
    recording: Recording, steady: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]
) -> Measured:
    """`step.evaluation_start_s`: seconds per step to start the workers of evaluation loaders, from the request for the iterator on."""
    found = Measured()
    for rank, steps in steady.items():
        spans = recording.spans.get(rank)
        evaluating = [x.id for x in loaders if x.rank == rank and x.training is False and x.num_workers]
        if spans is None or not evaluating:
            continue
        rows = spans[(spans["label"] == SPAN_CODE["loader_start"]) & np.isin(spans["site"], evaluating)]
        inside = _within(steps, rows["t_start_ns"], rows["t_end_ns"]) >= 0
        total_ns = float((rows["t_end_ns"] - rows["t_start_ns"])[inside].sum())
        found[STEP_EVALUATION_START_S, rank] = total_ns / 1e9 / float(steps.count.sum())
    return found


def cold_values(recording: Recording, everything: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts]) -> Measured:
    """`epoch.cold_*` of a first epoch whose steps waited much longer than later ones; empty if they did not."""
    cold = cold_epoch(everything)
    found = Measured()
    if cold is None:
        return found
    measured = {
        EPOCH_COLD_STEPS: cold.steps,
        EPOCH_COLD_WAIT_S: cold.wait_s,
        EPOCH_COLD_LATER_WAIT_S: cold.later_wait_s,
        EPOCH_COLD_STEP_S: cold.step_s,
    }
    found.update({(measure, JOB): value for measure, value in measured.items()})
    reads = []
    for rank, steps in everything.items():
        made = recording.batches.get(rank)
        rows = None if made is None else made_for(made, training_loader(loaders, rank))
        reads.append(_reads(rows, steps, cold.next_ns))
    for measure, values in zip((EPOCH_COLD_READ_MB, EPOCH_COLD_LATER_READ_MB), zip(*reads, strict=True), strict=True):
        known = [value for value in values if value is not None]
        if len(known) == len(reads):
            found[measure, JOB] = sum(known) / len(known)
    return found


def _reads(table: Table | None, steps: RankSteps, next_ns: int) -> tuple[float | None, float | None]:
    """MB read from a device per batch in the first epoch and after it."""
    if table is not None and table.size:
        ends, blocks, batches = table["t_end_ns"], table["blocks"], np.ones(table.size)
    else:
        ends, blocks, batches = steps.end_ns, steps.columns["fetch_blocks"], steps.columns["fetches"]
    first = ends <= next_ns
    made = [(float(blocks[part].sum()), float(batches[part].sum())) for part in (first, ~first)]
    before, after = (read * _BLOCK_BYTES / count / 1e6 if count else None for read, count in made)
    return before, after
