"""Selects one start of ranks that were started more than once: by an elastic launcher, a spawning loop, or one script after another.

Each start counts its steps from 0, so rows of two starts with the same number are not the same step. Typical steps are those of one start.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.report import Segment

if TYPE_CHECKING:
    from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps

# The last start shows the present state of the job. With fewer steps than this, the start with the most steps is used.
_ENOUGH_STEPS = 20


def one_start(everything: Mapping[int, RankSteps]) -> dict[int, RankSteps]:
    """The steps of the selected start, for the ranks that took part in it; all steps if no rank was started again."""
    starts = {rank: _starts(steps) for rank, steps in everything.items()}
    return {rank: starts[rank][chosen] for rank, chosen in _chosen(starts).items()}


def with_one_start(recording: Recording, everything: Mapping[int, RankSteps]) -> Recording:
    """The recording with only the selected start in the tables that are matched to steps by number and have no times."""
    starts = {rank: _starts(steps) for rank, steps in everything.items()}
    if all(len(own) == 1 for own in starts.values()):
        return recording
    back = {rank: len(starts[rank]) - chosen for rank, chosen in _chosen(starts).items()}
    gpu_steps, comm, collectives = (
        {rank: _part(rows, back[rank]) for rank, rows in tables.items() if rank in back}
        for tables in (recording.gpu_steps, recording.comm, recording.collectives)
    )
    return replace(recording, gpu_steps=gpu_steps, comm=comm, collectives=collectives)


def start_segments(everything: Mapping[int, RankSteps], origin_ns: int) -> list[Segment]:
    """The starts of the first rank; empty if no rank was started again."""
    starts = {rank: _starts(steps) for rank, steps in everything.items()}
    rank = min(starts, default=-1)
    if all(len(own) == 1 for own in starts.values()):
        return []
    counts, found = _chosen(starts).get(rank), []
    for number, steps in enumerate(starts[rank]):
        label = f"start {number + 1} of {len(starts[rank])}" + (
            ": typical steps are of this one" if number == counts else ""
        )
        begin_s, end_s = ((int(t) - origin_ns) / 1e9 for t in (steps.start_ns[0], steps.end_ns[-1]))
        found.append(Segment("start", begin_s, end_s, int(steps.step[0]), int(steps.step[-1]), label))
    return found


def _starts(steps: RankSteps) -> list[RankSteps]:
    edges = [0, *(np.flatnonzero(np.diff(steps.step) < 0) + 1).tolist(), steps.step.size]
    if len(edges) == 2:
        return [steps]
    row = np.arange(steps.step.size)
    return [steps.keep((row >= a) & (row < b)) for a, b in itertools.pairwise(edges)]


def _chosen(starts: Mapping[int, list[RankSteps]]) -> dict[int, int]:
    """Index of the selected start of each rank; ranks that took no part in it are left out."""
    if all(len(own) == 1 for own in starts.values()):
        return dict.fromkeys(starts, 0)
    last = max((own[-1] for own in starts.values()), key=lambda steps: int(steps.start_ns[0]))
    if last.count.sum() < _ENOUGH_STEPS:
        last = max((steps for own in starts.values() for steps in own), key=lambda steps: float(steps.count.sum()))
    found = {}
    for rank, own in starts.items():
        meanwhile = [n for n, steps in enumerate(own) if _together_s(steps, last) > 0]
        if meanwhile:
            found[rank] = max(meanwhile, key=lambda n: _together_s(own[n], last))
    return found


def _together_s(steps: RankSteps, others: RankSteps) -> float:
    """Seconds in which both were running; negative if they did not overlap."""
    begin, end = max(steps.start_ns[0], others.start_ns[0]), min(steps.end_ns[-1], others.end_ns[-1])
    return float(end - begin) / 1e9


def _part(rows: Table, back: int) -> Table:
    """Rows of the start `back - 1` before the last, in order of arrival; empty if there are too few starts."""
    edges = [0, *(np.flatnonzero(np.diff(rows["step"]) < 0) + 1).tolist(), rows.size]
    return rows[edges[-back - 1] : edges[-back]] if back < len(edges) else rows[:0]
