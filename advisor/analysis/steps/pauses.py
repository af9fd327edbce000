"""Measures pauses of the steps: garbage collections, by the phase they fall into, and late compilations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    COMPILE_LATE,
    COMPILE_LATE_S,
    GC_BETWEEN_S,
    GC_CRITICAL_S,
    GC_LONG_SHARE,
    GC_REPEATED_PAUSE_S,
)
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.documents.rank_documents import CompilationFacts
from rn50_advisor.probes.rank.layout import COMPILATIONS_MAX, SPAN_CODE

Array = NDArray[np.float64]

_SPANS_COMPLETE_BELOW = 1_000  # fewer spans than this are complete: no limit has cut any
_REPEATS_MIN = 3  # a single long pause is late warm-up or chance
_BETWEEN = ("gap", "evaluation", "checkpoint")
_AFTER_BACKWARD = (*_BETWEEN, "optimizer", "clip")


def collecting_values(recording: Recording, steady: Mapping[int, RankSteps], account: StepAttribution) -> Measured:
    """Garbage collection measures of each rank over the steady steps, and the time that all ranks lose together."""
    found = Measured({(GC_CRITICAL_S, JOB): _critical_s(recording, steady, account)})
    for rank, steps in steady.items():
        single = steps.count == 1
        between = _begun_in(steps, recording.spans.get(rank), _BETWEEN)
        fair = steps.sample
        found[GC_BETWEEN_S, rank] = float(between[fair].sum() / max(fair.sum(), 1))
        found[GC_LONG_SHARE, rank] = _long_share(steps, recording.spans.get(rank))
        longest = np.sort(steps.columns["gc"][single])
        if longest.size >= _REPEATS_MIN:
            found[GC_REPEATED_PAUSE_S, rank] = float(longest[-_REPEATS_MIN])
    return found


def _critical_s(recording: Recording, steady: Mapping[int, RankSteps], account: StepAttribution) -> float:
    """Seconds by which the mean step would be shorter without garbage collections.

    A step is as long as its slowest rank. Ranks that collect in different steps each keep the others waiting, so together they lose more
    than any of them collects. A collection on a rank that is not the slowest costs nothing.
    """
    if not account.turns:
        return max(steps.per_step("gc") for steps in steady.values())
    lengths, without = [], []
    for rank, turn in account.turns.items():
        steps, rows = steady[rank], account.rows[rank]
        late = _begun_in(steps, recording.spans.get(rank), _AFTER_BACKWARD)
        early = np.maximum(0.0, steps.columns["gc"] - late)
        # time after the backward belongs to the next turn
        collected = early[rows] + np.roll(late[rows], 1)
        lengths.append(turn)
        without.append(np.maximum(0.0, turn - collected))
    return float((np.max(lengths, axis=0) - np.max(without, axis=0)).mean())


def _long_share(steps: RankSteps, spans: Table | None) -> float:
    """Share of collections of 5 ms and more in the time of all, over the steps whose spans are kept."""
    rows = None if spans is None else spans[spans["label"] == SPAN_CODE["gc"]]
    if rows is None or rows.size == 0:
        return 0.0
    kept = steps.step >= (rows["step"].min() if rows.size >= _SPANS_COMPLETE_BELOW else 0)
    rows = rows[np.isin(rows["step"], steps.step[kept])]
    total = float(steps.columns["gc"][kept].sum())
    return min(1.0, float((rows["t_end_ns"] - rows["t_start_ns"]).sum()) / 1e9 / max(total, 1e-9))


def _begun_in(steps: RankSteps, spans: Table | None, phases: tuple[str, ...]) -> Array:
    """Seconds per row of the long collections that began in these phases, which end the step."""
    seconds = np.zeros(steps.step.size)
    if spans is None or spans.size == 0:
        return seconds
    rows = spans[spans["label"] == SPAN_CODE["gc"]]
    order = np.argsort(steps.step)
    at = np.searchsorted(steps.step[order], rows["step"])
    known = at < order.size
    rows, at = rows[known], order[at[known]]
    opens_ns = steps.end_ns - 1e9 * sum(steps.columns[name] for name in phases)
    inside = (steps.step[at] == rows["step"]) & (steps.count[at] == 1) & (rows["t_start_ns"] >= opens_ns[at])
    inside &= rows["t_start_ns"] <= steps.end_ns[at]
    np.add.at(seconds, at[inside], (rows["t_end_ns"] - rows["t_start_ns"])[inside] / 1e9)
    return seconds


WARM_UP_STEPS = 50  # before this step, shapes and branches may occur for the first time


def compilation_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Number of compilations from step 50 on and their seconds per steady step, for ranks that compiled anything.

    If there were more than a rank keeps, only steps since the first kept compilation count.
    """
    found = Measured()
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        compilations = recording.facts.get(processes[rank].pid, {}).get("compilations") if rank in processes else None
        late = steps.step >= WARM_UP_STEPS
        if compilations and len(compilations) >= COMPILATIONS_MAX:
            late &= steps.end_ns >= compilations[0].get("began_ns", 0)
        if compilations and late.any():
            after = steps.keep(late)
            took = list(_within(compilations, int(after.start_ns[0]), int(after.end_ns[-1])))
            found[COMPILE_LATE, rank] = float(len(took))
            found[COMPILE_LATE_S, rank] = sum(took) / max(float(after.count.sum()), 1.0)
    return found


def _within(compilations: Iterable[CompilationFacts], first_ns: int, last_ns: int) -> Iterable[float]:
    """Seconds of each compilation that began in this time."""
    for made in compilations:
        if first_ns <= made.get("began_ns", -1) <= last_ns:
            yield made.get("took_ns", 0) / 1e9
