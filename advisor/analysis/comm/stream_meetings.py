"""Splits a GPU's passes into its own work and waiting for collectives called from Python, from the events around these waits.

Only some steps have such events. In the others, a pass is longer than the GPU's own work by its wait: that work hardly varies, or if it
does (batches of different size), in proportion to the pass.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.comm_measures import COLLECTIVES_NORM_S, COLLECTIVES_STREAM_S
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Table

Array = NDArray[np.float64]

MET = ("forward", "backward", "optimizer")
_TIMED_MIN = 3  # steps; the first ones of a run are not among those that count
# Own work that varies by more than this share of it (median deviation) comes from batches of different size.
_VARIES_SHARE = 0.1


def timed_rows(steps: RankSteps, table: Table | None) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """(mask of the rows whose waits were timed, for each row its place in the table)."""
    if table is None or not table.size or "meetings" not in (table.dtype.names or ()):
        return np.zeros(steps.step.size, np.bool_), np.zeros(steps.step.size, np.int64)
    order = np.argsort(table["step"], kind="stable")
    at = order[np.clip(np.searchsorted(table["step"][order], steps.step), 0, table.size - 1)]
    found = (table["step"][at] == steps.step) & (steps.count == 1) & (table["meetings"][at] >= 0)
    return found, at


def meetings_timed(recording: Recording, everything: Mapping[int, RankSteps]) -> bool:
    """True if the waits of all ranks' streams were timed in enough steps."""
    tables = recording.gpu_steps
    return bool(everything) and all(waits_timed(steps, tables.get(rank)) for rank, steps in everything.items())


def waits_timed(steps: RankSteps, table: Table | None) -> bool:
    """True if the waits of this rank's stream were timed in enough steps, and there were some."""
    timed, at = timed_rows(steps, table)
    return table is not None and int(timed.sum()) >= _TIMED_MIN and bool(table["meetings"][at[timed]].any())


def waits_on_stream(
    steps: RankSteps, table: Table | None, phases: Mapping[str, Array]
) -> tuple[dict[str, Array], NDArray[np.bool_]] | None:
    """(seconds per row and phase in which the stream waited for collectives, mask of timed rows); None if they were hardly timed."""
    if table is None or not waits_timed(steps, table):
        return None
    timed, at = timed_rows(steps, table)
    found = {}
    for phase in MET:
        whole = phases[phase]
        waited = np.clip(table[f"{phase}_met_ns"][at] / 1e9, 0.0, whole)
        found[phase] = np.where(timed, waited, _elsewhere(whole, waited, timed, steps.count))
    return found, timed


def stream_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds per step in which each rank's GPU waits for collectives called from Python, and the part of synchronised batch norm.

    Its calls of the forward pass meet nothing else on the wire: those of the backward pass, which may queue behind gradients, need as long.
    """
    values = Measured()
    if not meetings_timed(recording, steady):
        return values
    forward: list[float] = []
    for rank, steps in steady.items():
        timed, at = timed_rows(steps, recording.gpu_steps.get(rank))
        rows = recording.gpu_steps[rank][at[timed]]
        means = {phase: float(rows[f"{phase}_met_ns"].mean()) / 1e9 for phase in MET}
        values[COLLECTIVES_STREAM_S, rank] = sum(means.values())
        forward.append(means["forward"])
    if all(_mostly_norms(recording.collectives.get(rank)) for rank in steady):
        # loaders that are slow in turn keep ranks waiting in the forward pass alone
        in_turn = min((turn for turn, _ in _turns(steady, recording.gpu_steps, recording.collectives)), default=0.0)
        values[COLLECTIVES_NORM_S, JOB] = max(0.0, 2.0 * (min(forward) - in_turn))
    return values


def in_turn_s(steady: Mapping[int, RankSteps], tables: Mapping[int, Table], called: Mapping[int, Table]) -> float:
    """Seconds per step for which even the rank that waits least waits for others in synchronised batch norm, as ranks are last in turn.

    These collectives are alike and small: the shortest wait, that of the rank which came last, is their time on the wire. Those of the
    backward pass also wait behind gradients, but for other ranks as long as those of the forward pass.
    """
    return min((fw + min(fw, bw) for fw, bw in _turns(steady, tables, called)), default=0.0)


def _turns(
    steady: Mapping[int, RankSteps], tables: Mapping[int, Table], called: Mapping[int, Table]
) -> list[tuple[float, float]]:
    """Seconds per step by which each rank waits for longer than the wire takes, in forward and in backward; none if that is not known."""
    if len(steady) < 2 or not all(
        waits_timed(s, tables.get(r)) and _mostly_norms(called.get(r)) for r, s in steady.items()
    ):
        return []
    beyond, wires = [], []
    for rank, steps in steady.items():
        timed, at = timed_rows(steps, tables[rank])
        rows = tables[rank][at[timed]]
        rows = rows[rows["least_met_ns"] >= 0]
        if not rows.size:
            return []
        wires.append(float(np.median(rows["least_met_ns"])) / 1e9)
        beyond.append(
            (
                float(rows["meetings"].mean()) / 2,
                float(rows["forward_met_ns"].mean()) / 1e9,
                float(rows["backward_met_ns"].mean()) / 1e9,
            )
        )
    wire = min(wires)
    return [(_in_turn_s(n, forward, wire), _in_turn_s(n, backward, wire)) for n, forward, backward in beyond]


def _in_turn_s(calls: float, waited_s: float, wire_s: float) -> float:
    return max(0.0, waited_s - calls * wire_s)


def _mostly_norms(called: Table | None) -> bool:
    return (
        called is not None
        and called.size > 0
        and float(called["norm_calls"].sum()) > 0.5 * float(called["calls"].sum())
    )


def _elsewhere(whole: Array, waited: Array, timed: NDArray[np.bool_], count: Array) -> Array:
    """Seconds of waiting in rows that were not timed, on average as much as chance does not add."""
    own, total = (whole - waited)[timed], float(waited[timed].sum())
    usual = float(np.median(own))
    if float(np.median(np.abs(own - usual))) >= _VARIES_SHARE * usual:
        return whole * total / max(float(whole[timed].sum()), 1e-12)
    beyond = np.clip(whole - usual * count, 0.0, None)
    seen = np.sort(beyond[timed])[::-1]
    # the threshold above which the same rule finds, in the timed rows, what was measured there
    each = (np.cumsum(seen) - total) / np.arange(1, seen.size + 1)
    chance = float(each[np.flatnonzero(seen >= each)[-1]])
    return np.asarray(np.clip(beyond - chance * count, 0.0, None), np.float64)
