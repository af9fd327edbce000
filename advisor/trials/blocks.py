"""Pairs of blocks from one job that switches between itself and a change: seconds per sample without, over seconds with.

Which variant a step belongs to follows from its number alone (see `probes/rank/trials`). The first steps after a switch still work on what
was prefetched before it and are left out. Evaluations, checkpoints and starts of epochs fall into some blocks and not into others: where
only one block of a pair has them, they are left out together with the steps that find a full prefetch queue after them; where both have
them, both are charged for them equally often.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, all_steps
from rn50_advisor.advisor.model.recording import Recording

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

STEPS_MIN = 4  # left of a block; fewer hardly average over neighbouring steps
_AFTER_SWITCH = 2  # steps beyond those that were prefetched: one is under way, and one meets cold caches
_ALIKE = 0.01  # totals of ranks that differ by less belong to ranks that wait for each other


@dataclass(frozen=True, slots=True)
class BlockSchedule:
    """Variants by step: 0 before `from_step`, then blocks of `block_steps` in this order, again and again."""

    from_step: int
    block_steps: int
    order: tuple[int, ...]

    @classmethod
    def of(cls, live: Mapping[str, Any]) -> BlockSchedule:
        """From the request to the ranks."""
        return cls(int(live["from_step"]), int(live["block_steps"]), tuple(map(int, live["order"])))

    def variant(self, block: int) -> int:
        return self.order[block % len(self.order)] if block >= 0 else 0

    def begin(self, block: int) -> int:
        return self.from_step + block * self.block_steps

    def pairs(self, blocks: int) -> Iterator[tuple[int, int]]:
        """Neighbouring blocks, without the change and with it, among so many; each block is in one pair at most."""
        block = 0
        while block + 1 < blocks:
            first, second = self.variant(block), self.variant(block + 1)
            if first != second and 0 in (first, second):
                yield (block, block + 1) if first == 0 else (block + 1, block)
                block += 1
            block += 1


def settling_steps(workers: int, prefetch_factor: int) -> int:
    """How many steps after a switch are left out; of both variants, the larger product counts."""
    return workers * prefetch_factor + _AFTER_SWITCH


def log_ratios(recording: Recording, schedule: BlockSchedule, *, settling: int) -> dict[int, list[float]]:
    """By variant, the logarithm of the speed-up in each pair of whole blocks, oldest first. `settling`: see `settling_steps`."""
    job = _job_steps(recording)
    if job is None:
        return {}
    found: dict[int, list[float]] = {}
    blocks = max(0, (int(job.step[-1]) + 1 - schedule.from_step) // schedule.block_steps)
    for without, changed in schedule.pairs(blocks):
        sides = (job.rows(_kept(job, schedule, without, settling)), job.rows(_kept(job, schedule, changed, settling)))
        ratio = _log_ratio(*_comparable(job, sides, settling))
        if ratio is not None:
            found.setdefault(schedule.variant(changed), []).append(ratio)
    return found


@dataclass(frozen=True, slots=True)
class _JobSteps:
    """Steps that all ranks made. Seconds are those of the rank that sets the pace, samples those of all ranks."""

    step: NDArray[np.int64]
    seconds: Array
    samples: Array
    aside: Mapping[str, Array]  # seconds of evaluations and of checkpoints
    events: Mapping[str, Mask]  # steps with one of these, or with the first fetch of an epoch

    def rows(self, mask: Mask) -> _JobSteps:
        return _JobSteps(
            self.step[mask],
            self.seconds[mask],
            self.samples[mask],
            {name: values[mask] for name, values in self.aside.items()},
            {name: values[mask] for name, values in self.events.items()},
        )


def _job_steps(recording: Recording) -> _JobSteps | None:
    """None without a step that all ranks made, and for ranks that were started again."""
    ranks = [steps.keep(steps.count == 1) for steps in all_steps(recording).values()]
    if any((np.diff(steps.step) <= 0).any() for steps in ranks):
        return None
    shared = functools.reduce(np.intersect1d, (steps.step for steps in ranks)) if ranks else np.empty(0, np.int64)
    if not shared.size:
        return None
    ranks = [steps.keep(_first_rows(steps.step, shared)) for steps in ranks]
    pace = _pace_setter(ranks)
    aside = {name: pace.columns[name] for name in ("evaluation", "checkpoint")}
    events = {name: np.any([steps.columns[name] > 0 for steps in ranks], axis=0) for name in aside}
    events["epoch start"] = np.any([steps.epoch_start for steps in ranks], axis=0)
    return _JobSteps(shared, _lengths(pace), _samples(ranks), aside, events)


def _first_rows(step: NDArray[np.int64], shared: NDArray[np.int64]) -> Mask:
    mask = np.zeros(step.size, np.bool_)
    mask[np.searchsorted(step, shared)] = True
    return mask


def _pace_setter(ranks: list[RankSteps]) -> RankSteps:
    """The slowest rank; of ranks that wait for each other the one that evaluates and saves."""
    totals = [float(steps.length.sum()) for steps in ranks]
    slow = [steps for steps, total in zip(ranks, totals, strict=True) if total >= (1.0 - _ALIKE) * max(totals)]
    return max(slow, key=lambda steps: float((steps.columns["evaluation"] + steps.columns["checkpoint"]).sum()))


def _lengths(steps: RankSteps) -> Array:
    """From the end of the step before, so that no time is lost between them."""
    begins = steps.start_ns.copy()
    follows = np.flatnonzero(np.diff(steps.step) == 1)
    begins[follows + 1] = steps.end_ns[follows]
    return np.asarray((steps.end_ns - begins) / 1e9)


def _samples(ranks: list[RankSteps]) -> Array:
    """Of all ranks in each step; steps count alike where a rank's batches do not tell."""
    each = [steps.columns["samples"] for steps in ranks]
    if not all(samples.any() for samples in each):
        return np.ones(ranks[0].step.size)
    return np.asarray(
        np.sum([np.where(samples > 0, samples, np.median(samples[samples > 0])) for samples in each], axis=0)
    )


def _kept(job: _JobSteps, schedule: BlockSchedule, block: int, settling: int) -> Mask:
    begin = schedule.begin(block)
    switched = schedule.variant(block) != schedule.variant(block - 1)
    return np.asarray((job.step >= begin + (settling if switched else 0)) & (job.step < begin + schedule.block_steps))


def _comparable(
    job: _JobSteps, sides: tuple[_JobSteps, _JobSteps], settling: int
) -> tuple[_JobSteps, _JobSteps, list[str]]:
    """The sides without events that only one of them has, and the names of the events that both have."""
    without, changed = sides
    both = [name for name in job.events if without.events[name].any() and changed.events[name].any()]
    for name in set(job.events) - set(both):
        at = job.step[job.events[name]]
        without, changed = (side.rows(~_shadowed(side.step, at, settling)) for side in (without, changed))
    return without, changed, both


def _shadowed(step: NDArray[np.int64], at: NDArray[np.int64], settling: int) -> Mask:
    """Steps of an event, and those that find a full prefetch queue after it."""
    last = np.searchsorted(at, step, side="right") - 1
    since = step - at[np.maximum(last, 0)] if at.size else step
    return np.asarray((last >= 0) & (since <= settling))


def _log_ratio(without: _JobSteps, changed: _JobSteps, both: list[str]) -> float | None:
    """None where too little is left of a side."""
    sides = (without, changed)
    if min(side.step.size for side in sides) < STEPS_MIN:
        return None
    steps = sum(side.step.size for side in sides)
    often = {name: sum(int(side.events[name].sum()) for side in sides) / steps for name in both}
    before, after = (_per_sample_s(side, often) for side in sides)
    return math.log(before / after) if before > 0 and after > 0 else None


def _per_sample_s(side: _JobSteps, often: Mapping[str, float]) -> float:
    """Seconds per sample if each event came as often as in both blocks together. `often`: events per step."""
    plain_s, extra_s = float(side.seconds.sum()), 0.0
    for name, per_step in often.items():
        cost_s = float(_cost(side, name).sum())
        plain_s -= cost_s
        extra_s += per_step * side.step.size * cost_s / float(side.events[name].sum())
    return (plain_s + extra_s) / float(side.samples.sum())


def _cost(side: _JobSteps, name: str) -> Array:
    if name in side.aside:
        return side.aside[name]
    core = side.seconds - np.sum(list(side.aside.values()), axis=0)
    quiet = core[~side.events[name]]
    usual_s = float(np.median(quiet)) if quiet.size else 0.0
    return np.where(side.events[name], np.maximum(0.0, core - usual_s), 0.0)
