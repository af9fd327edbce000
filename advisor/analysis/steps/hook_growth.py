"""Measures what hooks that pile up add to a step: by how much the phase in which they run grows with their number."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.stacks.source.hook_source import registering_call
from rn50_advisor.advisor.analysis.steps.phases import split_of
from rn50_advisor.advisor.analysis.steps.speed_changes import usual_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HookPile
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.statistics import weighted_quantile
from rn50_advisor.probes.documents.rank_documents import PiledHooks, RankFacts

Array = NDArray[np.float64]
Phase = Literal["forward", "backward", "optimizer", "gap"]

_READINGS_MIN = 3  # each higher than the one before: what is registered once more by chance does not pile up
_STRETCHES = 16
_ROWS_MIN = 24
_HANDLER = "addHandler"
_BACKWARD = ("backward", "register_hook", "accumulate")  # parts of the names of methods
# The first steps have few hooks: what is to come resembles the later ones. Three seeded jobs became 2.1, 5.4 and 2.8 times as fast in
# turns where 2.1, 3.9 and 2.9 times were likely so; by the mean of all steps it was 2.4, 4.8 and 3.2 where 2.3, 4.3 and 2.6 were.
_EARLY_SHARE = 0.2
_SLOPES = (0.25, 0.75)  # quantiles of the growth between two stretches, at least and at most


def piled_hooks(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[HookPile, ...]:
    """Of all ranks, the costliest first. Hooks that add nothing measurable are among them, with nothing lost at least."""
    known = facts_by_rank(recording)
    found = [
        _lost(recording, steps, hooks, ranks=len(steady))
        for rank, steps in steady.items()
        for hooks in _growing(known.get(rank, RankFacts()))
    ]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: -sum(each.lost_s)))


def _growing(facts: RankFacts) -> list[PiledHooks]:
    """The hooks of each phase that are most, with those of the same phase that grow as well left to them."""
    most: dict[Phase, PiledHooks] = {}
    for hooks in facts.get("piled_hooks", ()):
        counts = [count for _, count in hooks["counts"]]
        grows = len(counts) >= _READINGS_MIN and all(was < now for was, now in itertools.pairwise(counts))
        phase = _phase_of(hooks["kind"])
        if grows and (phase not in most or counts[-1] > most[phase]["counts"][-1][1]):
            most[phase] = hooks
    return list(most.values())


def _phase_of(kind: str) -> Phase:
    if kind == _HANDLER:
        return "gap"  # where most loops log
    if "step" in kind:
        return "optimizer"
    return "backward" if any(part in kind for part in _BACKWARD) else "forward"


def _lost(recording: Recording, steps: RankSteps, hooks: PiledHooks, *, ranks: int) -> HookPile | None:
    phase = _phase_of(hooks["kind"])
    added = _added(recording, steps, hooks, phase, ranks=ranks)
    if added is None:
        return None
    (first, fewest), (last, count) = hooks["counts"][0], hooks["counts"][-1]
    call = registering_call(recording.sources, hooks["kind"], hooks["function"], hooks)
    where = call or hooks
    return HookPile(
        rank=steps.rank,
        kind=hooks["kind"],
        function=hooks["function"],
        function_at=f"{hooks['file']}:{hooks['line']}",
        file=where["file"],
        line=where["line"],
        registered=call is not None,
        count=count,
        added=count - fewest,
        steps=last - first,
        phase=phase,
        lost_s=added,
    )


def _added(
    recording: Recording, steps: RankSteps, hooks: PiledHooks, phase: Phase, *, ranks: int
) -> tuple[float, float] | None:
    """Seconds per step, at least and at most: the growth with each hook, times the mean number of hooks in the later steps, as a share of
    these; None with too few steps.
    """
    rows = np.flatnonzero(usual_rows(steps))
    if rows.size < _ROWS_MIN:
        return None
    phases = split_of(recording, steps, ranks=ranks).phases
    at, counts = np.array(hooks["counts"], np.float64).T
    number = _line(at, counts, steps.step + 0.5 * (steps.count - 1.0))
    parts = np.array_split(rows, _STRETCHES if rows.size >= 2 * _STRETCHES else rows.size // 2)
    seconds = np.array([_usual(phases[phase], steps, part) for part in parts])
    hooked = np.array([float(np.average(number[part], weights=steps.count[part])) for part in parts])
    pairs = np.triu_indices(len(parts), len(parts) // 4)  # of stretches far apart
    slopes = (seconds[pairs[1]] - seconds[pairs[0]]) / np.maximum(hooked[pairs[1]] - hooked[pairs[0]], 1.0)
    late = np.cumsum(steps.count) >= _EARLY_SHARE * steps.count.sum()
    weights = steps.count[late]
    each_s = float(np.quantile(slopes, _SLOPES[0])), float(np.quantile(slopes, _SLOPES[1]))
    added = [max(0.0, s) * float(np.average(number[late], weights=weights)) for s in each_s]
    most, step_s = (float(column[late].sum() / weights.sum()) for column in (phases[phase], steps.length))
    low, high = (min(s, most) / step_s * steps.per_step_s for s in added)
    return low, high


def _line(at: Array, counts: Array, steps: Array) -> Array:
    """Number of hooks at these steps. Before the first reading and after the last one it grows as between them."""
    slope = (counts[-1] - counts[0]) / max(at[-1] - at[0], 1.0)
    inside = np.interp(steps, at, counts)
    outside = np.minimum(steps - at[0], 0.0) + np.maximum(steps - at[-1], 0.0)
    return np.asarray(np.maximum(0.0, inside + slope * outside))


def _usual(seconds: Array, steps: RankSteps, rows: NDArray[np.int64]) -> float:
    return weighted_quantile((seconds / steps.count)[rows], steps.count[rows], 0.5)
