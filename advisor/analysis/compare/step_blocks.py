"""Cuts the steady steps of a run into blocks, from which `compare` draws its bootstrap samples.

Consecutive steps resemble each other (caches, neighbours, clocks). Drawing single steps would give a much too narrow interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.steps.attribution import account
from rn50_advisor.advisor.analysis.steps.periodic_stalls import periodic_stalls
from rn50_advisor.advisor.analysis.steps.phases import OWN_PHASES, split_of
from rn50_advisor.advisor.analysis.steps.restarts import with_one_start
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, steady_steps
from rn50_advisor.advisor.model.recording import Recording

Array = NDArray[np.float64]

_BLOCKS_MAX = 16  # more blocks would be too short to average over slow fluctuations; fewer give an unreliable spread
_PERIODS_MIN = 4  # least number of blocks of whole periods; below it, many short blocks give a better spread
_STEPS_MIN = 4  # least number of steps in a block; a shorter block hardly averages over neighbouring steps


@dataclass(frozen=True, slots=True)
class StepBlocks:
    """Blocks of steps: the number of steps, their seconds (mean over the ranks), and the seconds of each phase on the critical path."""

    steps: Array
    seconds: Array
    phases: Mapping[str, Array]

    @property
    def step_s(self) -> float:
        return float(self.seconds.sum() / self.steps.sum())


def step_blocks(recording: Recording) -> StepBlocks | None:
    """The run's steady steps in blocks; None if no step is steady."""
    everything = accounted_steps(recording)
    recording = with_one_start(recording, everything)
    steady = steady_steps(everything)
    if not steady:
        return None
    edges = _edges(recording, steady)
    blocks = edges.size + 1
    seconds, counts = np.zeros(blocks), np.zeros(blocks)
    for steps in steady.values():
        at = np.searchsorted(edges, steps.step, side="right")
        np.add.at(seconds, at, steps.length)
        np.add.at(counts, at, steps.count)
    kept = counts > 0
    per_step = _critical(recording, steady, edges, seconds / np.maximum(counts, 1.0))
    counts = counts / len(steady)
    return StepBlocks(
        counts[kept],
        (seconds / len(steady))[kept],
        {phase: (values * counts)[kept] for phase, values in per_step.items()},
    )


def _edges(recording: Recording, steady: Mapping[int, RankSteps]) -> NDArray[np.int64]:
    """The first step of every block but the first. Periodic events (checkpoints) fall equally often into each block where possible."""
    step = next(iter(steady.values())).step
    blocks = int(np.clip(step.size // _STEPS_MIN, 1, _BLOCKS_MAX))
    stall = periodic_stalls(recording, steady)
    if stall is not None and stall.period_steps is not None:
        period = max(1, round(stall.period_steps))
        length = period * math.ceil((int(step[-1]) - int(step[0])) / blocks / period)
        regular = np.arange(int(step[0]) + length, int(step[-1]) + 1, length)
        if regular.size + 1 >= _PERIODS_MIN:
            return regular
    return step[np.linspace(0, step.size, blocks + 1).astype(np.int64)[1:-1]]


def _critical(
    recording: Recording, steady: Mapping[int, RankSteps], edges: NDArray[np.int64], step_s: Array
) -> dict[str, Array]:
    """Seconds per step of each phase in each block, from the slowest rank of each step. A block without such rows gets the mean."""
    whole = account(steady, recording.gpu_steps, recording.comm, recording.collectives)
    ranks = sorted(whole.turns) or [max(steady, key=lambda rank: float(steady[rank].length.sum()))]
    rows = whole.rows if whole.turns else {ranks[0]: np.arange(steady[ranks[0]].step.size)}
    named = {rank: _phases(recording, steady[rank], len(steady)) for rank in ranks}
    last = np.stack([whole.turns[rank] for rank in ranks]).argmax(axis=0) if whole.turns else np.zeros(1, np.int64)
    at = np.searchsorted(edges, steady[ranks[0]].step[rows[ranks[0]]], side="right")
    counts = np.bincount(at, steady[ranks[0]].count[rows[ranks[0]]], minlength=step_s.size)
    found: dict[str, Array] = {}
    for phase in (*OWN_PHASES, "comm_exposed"):
        each = np.stack([named[rank][phase][rows[rank]] for rank in ranks])
        chosen = each[last, np.arange(each.shape[1])] if len(ranks) > 1 else each[0]
        sums = np.bincount(at, chosen, minlength=step_s.size)
        found[phase] = np.where(counts > 0, sums / np.maximum(counts, 1.0), sums.sum() / max(counts.sum(), 1.0))
    found["unattributed"] = np.maximum(0.0, step_s - np.sum(list(found.values()), axis=0))
    return found


def _phases(recording: Recording, steps: RankSteps, ranks: int) -> dict[str, Array]:
    parts = split_of(recording, steps, ranks=ranks)
    return {**parts.phases, "comm_exposed": np.zeros(steps.step.size) if parts.exposed is None else parts.exposed}
