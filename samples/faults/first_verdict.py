"""Time of the first right verdict, found by judging what the finished recording held at earlier times; and the job's speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.statistics import weighted_quantile
from rn50_advisor.advisor.store.replay import cut
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_TAIL
from samples.faults.scenario import Truth, Untouched
from samples.faults.score import judge

EVERY_S = 1.0
_FEW = 5  # steps


@dataclass(frozen=True, slots=True)
class FirstVerdict:
    """Time and steps until the first right verdict, counted from the job's start, or from the fault's if that came later."""

    seconds: float
    steps: int


def first_right_verdict(recording: Recording, truth: Truth, onset_step: int = 0) -> FirstVerdict | None:
    fault_ns = onset_ns(recording, onset_step)
    until_ns = max(fault_ns, first_step_ns(recording))
    while True:
        report = diagnose(cut(recording, until_ns)).as_json()
        if judge(truth, report).right:
            done = steps_until(recording, until_ns) - steps_until(recording, fault_ns)
            return FirstVerdict((until_ns - fault_ns) / 1e9, done)
        if until_ns >= recording.meta.last_ns:
            return None
        until_ns = min(until_ns + int(EVERY_S * 1e9), recording.meta.last_ns)


def onset_ns(recording: Recording, step: int) -> int:
    """Returns the time at which the first rank started this step.

    If no rank reached it: the end of the last step; without any step, the time at which the first rank came to its present position.
    """
    if step == 0:
        return recording.meta.started_ns
    starts = [rows["t_start_ns"][rows["step"] >= step] for rows in recording.steps.values()]
    ends = [int(rows["t_end_ns"][-1]) for rows in recording.steps.values() if len(rows)]
    started = [int(found[0]) for found in starts if len(found)]
    positions = [since_ns for _, _, since_ns in recording.positions.values()]
    return min(started, default=max(ends, default=min(positions, default=recording.meta.started_ns)))


def first_step_ns(recording: Recording) -> int:
    ends = [int(rows["t_end_ns"][0]) for rows in recording.steps.values() if len(rows)]
    return min(ends, default=recording.meta.last_ns)


def steps_until(recording: Recording, until_ns: int) -> int:
    """Returns the number of steps that the foremost rank had finished by then."""
    done = [
        int(rows["count"][(rows["t_end_ns"] <= until_ns) & ((rows["flags"] & FLAG_TAIL) == 0)].sum())
        for rows in recording.steps.values()
    ]
    return max(done, default=0)


def samples_per_s(recording: Recording, onset_step: int = 0) -> float | None:
    """Samples per second over all ranks, from this step on and without the first fifth; None if a rank has too few steps.

    Uses the recorded clock alone, not the advisor's analysis. The time before a late fault is left out, with and without the fix. Jobs
    without a known loader count steps; both runs of a pair are measured alike.
    """
    total = 0.0
    for rows in recording.steps.values():
        late = _late(rows, onset_step)
        if len(late) < _FEW:
            return None
        work = late["samples"].sum() or late["count"].sum()
        total += float(work) / float(late["t_end_ns"][-1] - late["t_start_ns"][0]) * 1e9
    return total or None


def pace_s(recording: Recording, phases: Sequence[Untouched], onset_step: int = 0) -> float | None:
    """Median seconds of these phases in the steps that `samples_per_s` counts, mean over the ranks."""
    found = []
    for rows in recording.steps.values():
        late = _late(rows, onset_step)
        if len(late) < _FEW:
            return None
        spent = sum((late[f"{phase}_ns"] for phase in phases), np.zeros(len(late), np.int64))
        found.append(weighted_quantile(spent / late["count"], late["count"].astype(np.float64), 0.5) / 1e9)
    return float(np.mean(found)) or None if found else None


def _late(rows: Table, onset_step: int) -> Table:
    steps = rows[(rows["flags"] & FLAG_TAIL) == 0]
    late = steps[int(np.ceil(0.2 * len(steps))) :]
    return late[late["step"] >= onset_step]
