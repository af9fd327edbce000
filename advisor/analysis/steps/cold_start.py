"""Separates the cold start of a run from its steady state: batches made ahead, and a first epoch with cold caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps

# While the first steps compile and allocate, workers fill their queues, and the next steps use these batches. A fetch that takes less than
# this share of the usual wait is served from the queue.
_RUN_AHEAD_WAIT_SHARE = 0.25
# Workers that finish together always serve some fetches in a row. Only a run this many times longer than any later one was made ahead.
_LONGER_THAN_LATER = 1.5
_AHEAD_MAX_SHARE = 1 / 3
_USUAL_STEPS = 10  # steps that must remain to show what is usual
_WAIT_SHARE = 0.05  # of the step; a shorter later wait leaves nothing for a queue to hide

# A first epoch is cold if its fetches wait at least this many times longer than later ones. Smaller differences are normal variation.
_COLD_WAIT_RATIO = 2.0
_COLD_SHARE = 0.10  # of the later step
_FIRST_ROWS = 3  # first rows of the run; their waits are never usual
_FIRST_STEPS = 5
_LATER_STEPS = 10


def run_ahead_rows(steps: RankSteps, warm_up: int) -> int:
    """Number of rows after the warm-up that used batches made during it, while later rows have to wait for theirs."""
    rows = steps.keep(np.arange(steps.step.size) >= warm_up)
    size = rows.step.size
    waits = rows.columns["input_wait"] / np.maximum(rows.count, 1.0)
    later = waits[size // 2 :]
    if later.size < _USUAL_STEPS or later.mean() < _WAIT_SHARE * (rows.length / rows.count)[size // 2 :].mean():
        return 0
    served = (waits < _RUN_AHEAD_WAIT_SHARE * later.mean()) & (rows.count == 1)
    ahead = int(served.argmin()) if not served.all() else 0
    longest = _longest_run(served[ahead:])
    enough = 2 <= ahead <= _AHEAD_MAX_SHARE * size and ahead > _LONGER_THAN_LATER * longest
    return ahead if enough and size - ahead >= _USUAL_STEPS else 0


def _longest_run(flags: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max()) if edges.size else 0


@dataclass(frozen=True, slots=True)
class ColdEpoch:
    """A first epoch whose steps waited for input much longer than those of later epochs. Seconds per step, mean over the ranks."""

    next_step: int  # first step of the second epoch
    next_ns: int
    steps: float
    wait_s: float
    later_wait_s: float
    step_s: float


def cold_epoch(everything: Mapping[int, RankSteps]) -> ColdEpoch | None:
    """The cold first epoch; None if there is none or too little was seen. First fetches are excluded: every epoch waits there."""
    firsts, laters, next_step, next_ns = [], [], 0, 0
    for steps in everything.values():
        starts = np.flatnonzero(steps.epoch_start)
        if starts.size < 2 or starts.size == steps.step.size:
            return None
        second, row = int(starts[1]), np.arange(steps.step.size)
        first = steps.keep(~steps.epoch_start & (row >= _FIRST_ROWS) & (row < second))
        later = steps.keep(~steps.epoch_start & (row > second))
        if first.count.sum() < _FIRST_STEPS or later.count.sum() < _LATER_STEPS:
            return None
        firsts.append(first)
        laters.append(later)
        next_step, next_ns = max(next_step, int(steps.step[second])), max(next_ns, int(steps.start_ns[second]))
    if not firsts:
        return None
    wait, later_wait = (float(np.mean([s.per_step("input_wait") for s in part])) for part in (firsts, laters))
    step, later_step = (float(np.mean([_usual_step_s(s) for s in part])) for part in (firsts, laters))
    if wait < _COLD_WAIT_RATIO * later_wait or wait - later_wait < _COLD_SHARE * later_step:
        return None
    steps_seen = float(np.mean([first.count.sum() for first in firsts]))
    return ColdEpoch(next_step, next_ns, steps_seen, wait, later_wait, step)


def _usual_step_s(steps: RankSteps) -> float:
    aside = steps.columns["evaluation"] + steps.columns["checkpoint"]
    return float((steps.length - aside).sum() / steps.count.sum())
