"""Measures GPU idle time and time limited by the host's kernel launches, from the CUDA events at the marks of each step.

An event passes when all work queued before it is done. If nothing is queued between two marks, as around a fetch, the stream's time between
them is idle time. If this time is above zero, the stream has run dry at the second mark: host and GPU are at the same point. From there on,
the GPU falls behind by the time that its phases take longer than the host's. A phase at whose end the GPU is not behind was paced by the
host: nothing was queued. Events do not show how much of that time kernels took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.observed_steps import trains_on_gpu
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_HOST_PACED_S,
    GPU_IDLE_GAP_S,
    GPU_IDLE_INPUT_S,
    GPU_UTIL_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import COPY_BLOCKING_S, COPY_PAGEABLE_S, SYNC_BLOCKED_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.recording import Recording, Table

Array = NDArray[np.float64]

PHASES = ("forward", "backward", "optimizer")
# A column that only profilers' traces have: nanoseconds by which the GPU is behind the host when a step begins.
BEHIND = "behind_ns"
_ROWS_MIN = 10
_DRY_S = 30e-6  # two events with nothing between them are a few microseconds apart
# A GPU that is behind by no more than this at the end of a phase kept up: its last kernels end a little after their launches.
_BEHIND_SHARE, _BEHIND_S = 0.10, 0.0002
_FETCH_SHARE = 0.5  # of the fetches of a step of several batches
# A phase that spends this share of its host time waiting for the GPU says nothing about launches.
_WAITED_SHARE = 0.10
_IDLE_FACT_NAMES = {
    SYNC_BLOCKED_S: "host_waits_ms",
    COPY_PAGEABLE_S: "host_in_pageable_copies_ms",
    COPY_BLOCKING_S: "host_in_blocking_copies_ms",
    GPU_IDLE_INPUT_S: "input_ms",
    GPU_IDLE_GAP_S: "between_steps_ms",
    GPU_HOST_PACED_S: "at_the_hosts_pace_ms",
}


@dataclass(frozen=True, slots=True)
class PacedRows:
    """Steps with both host and GPU times, in seconds."""

    host: Mapping[str, Array]
    gpu: Mapping[str, Array]
    gap_before: Array  # the host's gap before each step, like the stream's in `gpu`
    quiet_before: NDArray[np.bool_]  # True if neither evaluation nor checkpoint came right before
    batches: Array
    behind: Array | None  # at the start of the step; None: not known
    step: NDArray[np.int64]


def pace_values(recording: Recording, steady: Mapping[int, RankSteps], known: CallSites) -> Measured:
    """Idle time and host-paced time of every rank whose events were read."""
    values = Measured()
    for rank, steps in steady.items():
        table = recording.gpu_steps.get(rank)
        rows = paced_rows(steps, table) if table is not None and steps.fed else None
        if rows is None:
            continue
        values[GPU_IDLE_INPUT_S, rank] = float(rows.gpu["input_wait"].mean())
        if rows.quiet_before.any():
            idle = np.minimum(rows.gpu["gap"], rows.gap_before)
            values[GPU_IDLE_GAP_S, rank] = float(idle[rows.quiet_before].mean())
        paced = _host_paced(rows)
        lost = _not_launching(rank, known, rows)
        values[GPU_HOST_PACED_S, rank] = sum(max(0.0, paced[p] - lost[p]) for p in PHASES)
    if trains_on_gpu(recording) and not values.has(GPU_IDLE_INPUT_S):
        for measure in (GPU_IDLE_INPUT_S, GPU_IDLE_GAP_S, GPU_HOST_PACED_S):
            values.missing[measure, JOB] = "no GPU events were read in steps that a loader feeds"
    return values


def paced_rows(steps: RankSteps, table: Table) -> PacedRows | None:
    """The steps with both host and GPU times; None if there are too few."""
    order = np.argsort(table["step"], kind="stable")
    at = np.clip(np.searchsorted(table["step"][order], steps.step), 0, max(table.size - 1, 0))
    if not table.size:
        return None
    row = table[order][at]
    use = (row["step"] == steps.step) & steps.sample
    if use.sum() < (1 if steps.traced else _ROWS_MIN):  # a profiler's trace shows each step exactly
        return None
    c = steps.columns
    aside = c["evaluation"] + c["checkpoint"]
    before = np.roll(aside, 1)
    before[0] = 1.0  # the time before the first row is unknown
    host = {name: c[name][use] for name in ("input_wait", "forward", "backward")}
    host["optimizer"] = (c["clip"] + c["optimizer"])[use]
    gpu = {name: row[f"{name}_ns"][use] / 1e9 for name in ("input_wait", "gap", *PHASES)}
    gap = np.roll(c["gap"], 1)[use]
    behind = row[BEHIND][use] / 1e9 if table.dtype.names and BEHIND in table.dtype.names else None
    return PacedRows(
        host, gpu, gap, (before == 0)[use], np.maximum(c["micro_batches"][use], 1.0), behind, steps.step[use]
    )


def runs_dry(table: Table | None) -> bool:
    """True if in most steps the GPU's queue was empty when the batch arrived."""
    return table is not None and table.size > 0 and bool(np.median(table["input_wait_ns"]) > 1e9 * _DRY_S)


def gaps_as_seen(paced: Measured, known: Measured, gpus: Iterable[Gpu]) -> Measured:
    """Idle time between steps of each rank, at most the time in which its GPUs ran no kernel at all."""
    found = Measured()
    for gpu in gpus:
        resident = known.get((GPU_UTIL_SHARE, gpu.index))
        for rank in gpu.ranks:
            gap, fetch = (paced.get((measure, rank)) for measure in (GPU_IDLE_GAP_S, GPU_IDLE_INPUT_S))
            if resident is not None and gap is not None:
                idle = max(0.0, (1.0 - resident) * known[STEP_TIME_S, JOB] - (fetch or 0.0))
                found[GPU_IDLE_GAP_S, rank] = max(found.get((GPU_IDLE_GAP_S, rank), 0.0), min(gap, idle))
    return found


def _host_paced(rows: PacedRows) -> dict[str, float]:
    """Seconds per step of each phase in which the GPU kept up with the host.

    With several batches a step, the phases are sums: the GPU kept up with all of them only if it idled for most of each fetch.
    """
    if rows.behind is not None:
        behind = np.maximum(0.0, rows.behind + rows.gpu["input_wait"] - rows.host["input_wait"])
    else:
        behind = behind_at_batch(rows)
    found = {}
    for phase in PHASES:
        began = behind
        behind = np.maximum(0.0, behind + rows.gpu[phase] - rows.host[phase])
        kept_up = np.isfinite(began) & (behind <= _BEHIND_SHARE * rows.host[phase] + _BEHIND_S * rows.batches)
        spent = np.maximum(0.0, rows.host[phase] - began)
        found[phase] = float(np.where(kept_up, spent, 0.0).mean())
    return found


def behind_at_batch(rows: PacedRows) -> Array:
    """Seconds by which the GPU is behind the host when each batch arrives; infinite where that is not known.

    It is not behind where it idled. From there on, the times of both tell by how much it is, until a step without events: ranks that leave
    each exchange together seldom idle at a fetch, and yet may never be far behind.
    """
    least = np.where(rows.batches > 1, _FETCH_SHARE * rows.host["input_wait"], 0.0)
    dry = rows.gpu["input_wait"] > np.maximum(_DRY_S * rows.batches, least)
    later = [rows.gpu[name] - rows.host[name] for name in PHASES]
    fetch = rows.gpu["gap"] - rows.gap_before + rows.gpu["input_wait"] - rows.host["input_wait"]
    follows = np.append(False, np.diff(rows.step) == 1) & rows.quiet_before & (rows.batches <= 1)
    found = np.full(least.size, np.inf)
    behind = np.inf
    for n in range(least.size):
        behind = 0.0 if dry[n] else max(0.0, behind + fetch[n]) if follows[n] else np.inf
        found[n] = behind
        for longer in later:
            behind = max(0.0, behind + longer[n])
    return found


def _not_launching(rank: int, known: CallSites, rows: PacedRows) -> dict[str, float]:
    """Host time in each phase that says nothing about kernel launches: copies, and whole phases in which the host waits for the GPU."""
    lost = dict.fromkeys(PHASES, 0.0)
    for copy in known.copies:
        if copy.rank == rank and copy.phase in lost:
            lost[copy.phase] += copy.blocked_s
    waited = dict.fromkeys(PHASES, 0.0)
    for wait in known.waits:
        phase = "optimizer" if wait.phase == "clip" else wait.phase
        if wait.rank == rank and phase in waited:
            waited[phase] += wait.blocked_s
    for phase, seconds in waited.items():
        if seconds > _WAITED_SHARE * float(rows.host[phase].mean()):
            lost[phase] = np.inf
    return lost


def idle_facts(values: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """The GPU's time outside compute for each rank with events, in milliseconds per step, for the facts."""
    found = {
        str(rank): {
            word: round(1000 * seconds, 3)
            for measure, word in _IDLE_FACT_NAMES.items()
            if (seconds := values.get((measure, rank))) is not None
        }
        for rank in values.by_rank(GPU_IDLE_INPUT_S)
    }
    return {"gpu_idle": found} if found else {}
