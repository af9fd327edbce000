"""Loops that no loader of torch feeds: what of the time from one update to the next backward pass comes right after the update.

Nothing marks where that ends, so to the recorder it is one chunk: logging, a pause or an evaluation, then the next batch and the forward. A
profile's stacks tell them apart, by the lines of the function that trains. Of ranks on a GPU nothing is said: a line that waits until the
GPU has done its work looks alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import Ways, after_update, in_forward, told_rows, ways_to
from rn50_advisor.advisor.analysis.steps.phases import AFTER_UPDATE, IN_MODEL
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Event, Recording

_LOOKS_MIN = 100  # of fewer, a twentieth is too few to tell


def with_own_loop(recording: Recording, everything: Mapping[int, RankSteps]) -> dict[int, RankSteps]:
    """The same steps, of unfed ranks with columns of what comes after the update and of the model, where a profile tells."""
    processes = process_by_rank(recording.processes)
    found = dict(everything)
    for rank, steps in everything.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        shares = None if steps.fed or facts.get("cuda") else _shares(recording, steps)
        if shares is not None:
            after, model = (share * float(steps.length.sum()) for share in shares)
            column = _spread(steps, after)
            left = steps.columns["forward"] - column
            columns = {AFTER_UPDATE: column, IN_MODEL: left * min(1.0, model / max(float(left.sum()), 1e-12))}
            found[rank] = replace(steps, columns={**steps.columns, **columns})
    return found


def ways_of_unfed(recording: Recording, unfed: Iterable[int]) -> dict[int, Ways]:
    """By rank, of those whose profile shows where their loop is."""
    found = {}
    for rank in unfed:
        ways = ways_to([row for profile in _profiles(recording.events, rank) for row in told_rows(profile)])
        if ways.backwards:
            found[rank] = ways
    return found


def _shares(recording: Recording, steps: RankSteps) -> tuple[float, float] | None:
    """Of all looks at a rank those after its update, and those in its model's forward; None where no profile shows where its loop is."""
    ways = ways_of_unfed(recording, [steps.rank]).get(steps.rank)
    told = _profiles(recording.events, steps.rank)
    looks = sum(int(profile["looks"]) for profile in told)
    if ways is None or looks < _LOOKS_MIN:
        return None
    after = model = 0
    for row in (row for profile in told for row in told_rows(profile)):
        if after_update(row["frames"], ways):
            after += int(row["count"])
        elif in_forward(row["frames"]):
            model += int(row["count"])
    # where nobody saw the update, what stands before it is among them
    before = 0.0 if ways.updates else float(steps.columns["clip"].sum() / steps.length.sum())
    return max(0.0, after / looks - before), model / looks


def _profiles(events: Iterable[Event], rank: int) -> list[Mapping[str, Any]]:
    return [event.data for event in events if event.kind == "profile" and event.rank == rank]


def _spread(steps: RankSteps, seconds: float) -> NDArray[np.float64]:
    """So many seconds over the chunks of all steps: what a step takes beyond the usual one is not its batch nor its forward."""
    chunk = steps.columns["forward"]
    seconds = min(seconds, float(chunk.sum()))
    beyond = np.maximum(0.0, chunk - float(np.median(chunk / steps.count)) * steps.count)
    taken = beyond * min(1.0, seconds / max(float(beyond.sum()), 1e-12))
    rest = chunk - taken
    return np.asarray(taken + rest * (seconds - float(taken.sum())) / max(float(rest.sum()), 1e-12), np.float64)
