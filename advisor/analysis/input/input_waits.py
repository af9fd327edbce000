"""Splits a step's input wait into epoch starts, drawing of indices, and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.input_source import InputSource
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_EPOCH_START_S, STEP_INDEX_S, STEP_INPUT_WAIT_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, SPAN_CODE

# Number of the latest spans that retention keeps in full. A live screen reads 2000 spans of a rank.
_SPANS_MAX = 5_000
_SPANS_COMPLETE_BELOW = 1_000  # fewer spans than this are complete: neither limit has cut any


def input_values(
    steady: Mapping[int, RankSteps],
    accounts: StepAttribution,
    loaders: Sequence[LoaderFacts],
    *,
    drawn: Mapping[int, float],
    source: InputSource | None,
) -> Measured:
    """The three parts of the input wait of each rank that a loader feeds. `drawn` comes from `index_times`."""
    found = Measured()
    for rank, steps in steady.items():
        if not steps.fed:
            if source is not None:
                found.missing[STEP_INPUT_WAIT_S, rank] = source.why_unknown
            continue
        wait, loader = accounts.own[rank]["input_wait"], training_loader(loaders, rank)
        starts_s = min(_epoch_start_s(steps, by_workers=bool(loader and loader.num_workers)), wait)
        index_s = min(drawn.get(rank, 0.0), wait - starts_s)
        found[STEP_EPOCH_START_S, rank] = starts_s
        found[STEP_INPUT_WAIT_S, rank] = wait - starts_s - index_s
        if rank in drawn:
            found[STEP_INDEX_S, rank] = index_s
        else:
            found.missing[STEP_INDEX_S, rank] = "in no step was the drawing of indices timed"
    return found


def index_times(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[int, float]:
    """Seconds per step spent drawing indices, for each rank where this was timed.

    The first fetch of an epoch is left out: it draws the order of the whole epoch.
    """
    processes, found = process_by_rank(recording.processes), {}
    for rank, steps in steady.items():
        looked = rank in processes and recording.facts.get(processes[rank].pid, {}).get("indices_timed")
        clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
        if not steps.epoch_start.all():
            clocked &= ~steps.epoch_start
        if looked and steps.fed and clocked.any():
            found[rank] = _drawn_s(recording, steps.keep(clocked))
    return found


def _drawn_s(recording: Recording, steps: RankSteps) -> float:
    """Seconds per step spent drawing indices. With several batches per step, the spans of older steps may be gone."""
    rows = recording.spans.get(steps.rank)
    rows = None if rows is None else rows[rows["label"] == SPAN_CODE["index"]][-_SPANS_MAX:]
    if rows is None or rows.size == 0:
        return 0.0
    if rows.size >= _SPANS_COMPLETE_BELOW and (covered := steps.step > rows["step"][0]).any():
        steps = steps.keep(covered)
    rows = rows[np.isin(rows["step"], steps.step)]
    return float((rows["t_end_ns"] - rows["t_start_ns"]).sum()) / 1e9 / steps.step.size


def _epoch_start_s(steps: RankSteps, *, by_workers: bool) -> float:
    """Seconds per step by which the first fetch of an epoch is longer than a usual one.

    If every step starts an epoch, the whole wait counts with workers (they would otherwise have a batch ready) and nothing without.
    """
    first, waits, count = steps.epoch_start, steps.columns["input_wait"], steps.count
    if first.all():
        return steps.per_step("input_wait") if by_workers else 0.0
    usual = waits[~first].sum() / count[~first].sum()
    return max(0.0, float((waits[first].sum() - usual * count[first].sum()) / count.sum()))
