"""Measures how long the host takes for a step if it never waits for the GPU: no faster kernels make a step shorter than that.

A host that runs ahead is stopped once its GPU's queue is full, and then goes at the GPU's pace. What it takes by itself shows in phases
after the queue ran dry (after a log line that reads the loss, say), as long as it is ahead by clearly less than where it is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.host_pacing import PHASES, PacedRows, behind_at_batch, paced_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_HOST_PACED_S, GPU_HOST_STEP_S
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording

Array = NDArray[np.float64]

_FREE_SHARE = 0.6  # of the longest lead: a host that is ahead by less was not stopped
_FREE_S = 0.0002  # a host whose longest lead is no longer than this was never stopped
_FREE_ROWS_MIN = 2
_WHOLE_SHARE = 0.93  # of the step: the rest is fetching. A host that is any faster runs ahead until its queue is full
_WAITED_S = 20e-6  # a call that takes longer waits for the GPU


def launching_throughout(
    recording: Recording, steady: Mapping[int, RankSteps], launching: Mapping[int, float]
) -> Measured:
    """The passes of ranks whose host never waits: it takes the whole step to launch it, whether or not other ranks hold back its GPU.

    `launching`: by rank, seconds of the host for a step.
    """
    found = Measured()
    for rank, own_s in launching.items():
        table = recording.gpu_steps.get(rank)
        rows = paced_rows(steady[rank], table) if table is not None else None
        if rows is not None and own_s >= _WHOLE_SHARE * steady[rank].per_step_s:
            found[GPU_HOST_PACED_S, rank] = float(sum(np.median(rows.host[phase]) for phase in PHASES))
    return found


def host_step_values(recording: Recording, steady: Mapping[int, RankSteps], known: CallSites) -> Measured:
    """Seconds of the host for a step of each rank, at least. Ranks whose every step waits for the GPU are left out."""
    values = Measured()
    waiting = {wait.rank for wait in known.waits if wait.blocked_s > _WAITED_S}
    waiting |= {
        copy.rank for copy in known.copies if copy.blocked_s > _WAITED_S and not (copy.pinned and copy.non_blocking)
    }
    for rank, steps in steady.items():
        table = recording.gpu_steps.get(rank)
        rows = paced_rows(steps, table) if table is not None and steps.fed and rank not in waiting else None
        if rows is not None and (own := _host_step_s(rows)) > 0:
            values[GPU_HOST_STEP_S, rank] = own
    return values


def _host_step_s(rows: PacedRows) -> float:
    """The sum over phases of what the host takes by itself; phases in which it was always stopped count as nothing."""
    behind = behind_at_batch(rows)
    leads: dict[str, Array] = {}
    for phase in PHASES:
        behind = np.maximum(0.0, behind + rows.gpu[phase] - rows.host[phase])
        leads[phase] = behind
    known = np.concatenate([lead[np.isfinite(lead)] for lead in leads.values()])
    free_s = max(_FREE_SHARE * float(known.max(initial=0.0)), _FREE_S)
    found = 0.0
    for phase, lead in leads.items():
        own = rows.host[phase][lead <= free_s]
        if own.size >= _FREE_ROWS_MIN:
            found += float(np.median(own))
    return found + float(np.median(rows.gap_before)) if found else 0.0
