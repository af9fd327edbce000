"""Finds ranks that are short of batches: they wait for input, or get it in time only because they wait for another rank."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.measures.comm_measures import COMM_EXPOSED_S, COMM_WIRE_S
from rn50_advisor.advisor.model.measures.input_measures import FETCH_HAND_OVER_S, FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration, numbers
from rn50_advisor.rules.analysis_reading import batches_made, model_of, training_loader

_HIDDEN_WAIT_SHARE = 0.05  # of the step: the share from which an input wait is worth a finding


def batch_every_s(a: Analysis) -> dict[int, float]:
    """The shortest interval at which each rank's workers, or its training process, deliver batches."""
    workers = a.by_rank(LOADER_WORKERS)
    return {rank: wall / max(1.0, workers.get(rank, 1.0)) for rank, wall in a.by_rank(FETCH_WALL_S).items()}


def input_waits(a: Analysis) -> dict[int, float]:
    """Seconds per step that each rank waits for input, or would wait if the rank that it waits for were not short of input itself.

    In lockstep training the last rank never waits for others, so its workers cannot catch up. On a throttled disk with two ranks, one
    waited 238 ms of a step of 245, the other 9, and their workers made batches in 243 and 233.
    """
    waits, every, exposed = a.by_rank(STEP_INPUT_WAIT_S), batch_every_s(a), a.by_rank(COMM_EXPOSED_S)
    most, wire, batches = max(waits.values(), default=0.0), a.get(COMM_WIRE_S) or 0.0, batches_made(a)
    found = dict(waits)
    for rank in waits.keys() & every.keys() & exposed.keys():
        if not a.get(LOADER_WORKERS, rank):  # its wait is its loading
            continue
        own = model_of(a).own[rank]
        lacking = every[rank] * batches.get(rank, 1.0) - (sum(own.values()) - own["input_wait"])
        for_others = max(0.0, exposed[rank] - wire)
        found[rank] = max(waits[rank], min(most, waits[rank] + for_others, lacking))
    return found


def making_waits(a: Analysis) -> dict[int, float]:
    """`input_waits` without the hand-over of finished batches, which takes 3 to 4 ms on busy cores even when workers are idle."""
    handed, batches = a.by_rank(FETCH_HAND_OVER_S), a.by_rank(STEP_BATCHES)
    return {
        rank: max(0.0, wait - handed.get(rank, 0.0) * batches.get(rank, 1.0)) for rank, wait in input_waits(a).items()
    }


def ranks_with_hidden_wait(a: Analysis) -> tuple[int, ...]:
    """Ranks that are short of input by more than their own wait shows."""
    waits, least = a.by_rank(STEP_INPUT_WAIT_S), _HIDDEN_WAIT_SHARE * a.value(STEP_TIME_S)
    return tuple(sorted(rank for rank, wait in input_waits(a).items() if wait - waits[rank] >= least))


def input_evidence(a: Analysis, wait_s: float, threshold: float) -> Evidence:
    step = a.value(STEP_TIME_S)
    note = f"{100 * wait_s / step:.0f} % of a {duration(step)} step"
    loader = training_loader(a, a.by_rank(STEP_INPUT_WAIT_S))
    if loader is not None and loader.beside:
        note += f"; {loader.beside + 1} loaders feed each step; this one's batches take longest"
    hidden = ranks_with_hidden_wait(a)
    if hidden:
        who = f"rank {hidden[0]} is" if len(hidden) == 1 else f"ranks {numbers(hidden)} are"
        note += f"; {who} also short of batches, hidden by the wait for another rank"
    return Evidence.of(STEP_INPUT_WAIT_S, wait_s, threshold * step, note)
