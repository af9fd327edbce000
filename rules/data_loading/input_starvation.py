"""Which ranks are short of batches: those that wait for them, and those that are fed in time only while they wait for another rank."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.analysis_reading import batches_made, model_of, training_loader

_HIDDEN = 0.05  # of the step: as much as makes a wait for input worth a finding


def batch_every_s(a: Analysis) -> dict[int, float]:
    """How often the workers of each rank, or its training process, bring a batch at most."""
    workers = a.by_rank("loader.workers")
    return {rank: wall / max(1.0, workers.get(rank, 1.0)) for rank, wall in a.by_rank("fetch.wall_s").items()}


def input_waits(a: Analysis) -> dict[int, float]:
    """Seconds per step that each rank waits for input, or would if the one that it waits for were not short of input itself.

    Of ranks in step the one that comes last each time has no wait in which its workers could catch up. On a throttled disk one of two
    waited 238 ms of a step of 245, the other 9, and their workers made batches in 243 and 233.
    """
    waits, every, exposed = a.by_rank("step.input_wait_s"), batch_every_s(a), a.by_rank("comm.exposed_s")
    most, wire, batches = max(waits.values(), default=0.0), a.get("comm.wire_s") or 0.0, batches_made(a)
    found = dict(waits)
    for rank in waits.keys() & every.keys() & exposed.keys():
        if not a.get("loader.workers", rank):  # its wait is its loading
            continue
        own = model_of(a).own[rank]
        lacking = every[rank] * batches.get(rank, 1.0) - (sum(own.values()) - own["input_wait"])
        for_others = max(0.0, exposed[rank] - wire)
        found[rank] = max(waits[rank], min(most, waits[rank] + for_others, lacking))
    return found


def making_waits(a: Analysis) -> dict[int, float]:
    """Of these what is no handing over: that comes after a batch was made, 3 to 4 ms beside busy cores, with workers that rest."""
    handed, batches = a.by_rank("fetch.hand_over_s"), a.by_rank("step.batches")
    return {
        rank: max(0.0, wait - handed.get(rank, 0.0) * batches.get(rank, 1.0)) for rank, wait in input_waits(a).items()
    }


def fed_by_waiting(a: Analysis) -> tuple[int, ...]:
    """Ranks whose own wait is not what they are short of."""
    waits, least = a.by_rank("step.input_wait_s"), _HIDDEN * a.value("step.time_s")
    return tuple(sorted(rank for rank, wait in input_waits(a).items() if wait - waits[rank] >= least))


def input_evidence(a: Analysis, wait_s: float, threshold: float) -> Evidence:
    step = a.value("step.time_s")
    note = f"{100 * wait_s / step:.0f} % of a {1000 * step:.0f} ms step"
    loader = training_loader(a, a.by_rank("step.input_wait_s"))
    if loader is not None and loader.beside:
        note += f"; {loader.beside + 1} loaders feed each: this is the one whose batches take longest"
    hidden = fed_by_waiting(a)
    if hidden:
        who = f"rank {hidden[0]} is" if len(hidden) == 1 else f"ranks {numbers(hidden)} are"
        note += f"; {who} short of batches too, and fed in time only by waiting for another"
    return Evidence("step.input_wait_s", wait_s, "s", threshold * step, note)
