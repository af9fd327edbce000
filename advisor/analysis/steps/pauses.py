"""What pauses the steps: garbage collections, by the part of the step they fall into, and late compilations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import COMPILATIONS_MAX, SPAN_CODE

Array = NDArray[np.float64]

_REPEATED = 3  # a single long pause is a warm-up that came late, or chance
_BETWEEN = ("gap", "evaluation", "checkpoint")
_AFTER_BACKWARD = (*_BETWEEN, "optimizer", "clip")


def collecting_values(
    recording: Recording, steady: Mapping[int, RankSteps], account: StepAttribution
) -> dict[tuple[str, str], float]:
    """Values of each rank, and what all of them lose together, over the steady steps."""
    found: dict[tuple[str, str], float] = {("gc.critical_s", JOB): _critical_s(recording, steady, account)}
    for rank, steps in steady.items():
        scope, single = f"rank:{rank}", steps.count == 1
        between = _begun_in(steps, recording.spans.get(rank), _BETWEEN)
        fair = steps.sample
        found["gc.between_s", scope] = float(between[fair].sum() / max(fair.sum(), 1))
        longest = np.sort(steps.columns["gc"][single])
        if longest.size >= _REPEATED:
            found["gc.repeated_pause_s", scope] = float(longest[-_REPEATED])
    return found


def _critical_s(recording: Recording, steady: Mapping[int, RankSteps], account: StepAttribution) -> float:
    """How much shorter the mean step would be.

    A step is as long as its slowest rank. Ranks that collect in different steps each keep the others waiting, so together they lose more
    than any of them collects; a collection of a rank that others outlast costs nothing.
    """
    if not account.turns:
        return max(steps.per_step("gc") for steps in steady.values())
    lengths, without = [], []
    for rank, turn in account.turns.items():
        steps, rows = steady[rank], account.rows[rank]
        late = _begun_in(steps, recording.spans.get(rank), _AFTER_BACKWARD)
        early = np.maximum(0.0, steps.columns["gc"] - late)
        # what follows the backward belongs to the next turn
        collected = early[rows] + np.roll(late[rows], 1)
        lengths.append(turn)
        without.append(np.maximum(0.0, turn - collected))
    return float((np.max(lengths, axis=0) - np.max(without, axis=0)).mean())


def _begun_in(steps: RankSteps, spans: Table | None, phases: tuple[str, ...]) -> Array:
    """For each row, seconds of the long collections that began in these last phases of the step."""
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


WARM_UP_STEPS = 50  # until then each shape and branch may be met for the first time


def compilation_values(recording: Recording, steady: Mapping[int, RankSteps]) -> dict[tuple[str, str], float]:
    """Of ranks that have compiled anything: compilations after step 50 and their seconds a step, over the steady steps.

    Where there were more than a rank keeps, over the steps since the first one that it kept.
    """
    found: dict[tuple[str, str], float] = {}
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        told = recording.facts.get(processes[rank].pid, {}).get("compilations") if rank in processes else None
        late = steps.step >= WARM_UP_STEPS
        if told and len(told) >= COMPILATIONS_MAX:
            late &= steps.end_ns >= told[0].get("began_ns", 0)
        if told and late.any():
            scope, after = f"rank:{rank}", steps.keep(late)
            took = list(_within(told, int(after.start_ns[0]), int(after.end_ns[-1])))
            found["compile.late", scope] = float(len(took))
            found["compile.late_s", scope] = sum(took) / max(float(after.count.sum()), 1.0)
    return found


def _within(told: Iterable[Mapping[str, Any]], first_ns: int, last_ns: int) -> Iterable[float]:
    """Seconds of the compilations that began in this time."""
    for made in told:
        if first_ns <= made.get("began_ns", -1) <= last_ns:
            yield made.get("took_ns", 0) / 1e9
