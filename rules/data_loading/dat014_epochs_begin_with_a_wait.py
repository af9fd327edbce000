"""Data loading: slow epoch start.

What it does: finds training whose epochs begin with a wait much longer than a batch takes to make, for reasons other
than starting workers.

Fires when: waits for the first batches of epochs take ≥ 5 % of the time, without making one batch and without starting workers.

Why it is slow: a stream fills its shuffle buffer, opens its shards or seeks to its position before it yields the first
sample; a sampler draws the order of a very large data set. Nothing is computed meanwhile, and with short epochs this
happens often.

Evidence: how much longer the first fetch of an epoch takes than a usual one, spread over the steps, and the number of
epochs; the time to make a batch. If workers are restarted, the time to draw the order of an epoch.

Fix: begin epochs less often: one endless stream whose epochs are counted in steps; a smaller shuffle buffer, filled by
several workers; an order that is drawn once, or in the background.

Estimate: the time to make one batch in all workers at once remains, because the queue is empty then. Of the rest, half
disappears at worst and all of it at best. If workers are restarted, the estimate covers the first batch of a stream,
and for other data the order that is drawn once the workers run.

False alarms: restarted workers belong to DAT006. A data set whose first epoch is read from a cold disk: a single epoch
is not judged.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_FIRST_BATCH_S,
    EPOCH_INDEX_S,
    EPOCH_START_S,
    EPOCH_STARTS,
    STEP_EPOCH_START_S,
    STEP_TIME_S,
)
from rn50_advisor.rules.analysis_reading import (
    common,
    mean,
    model_of,
    sampler_of,
    step_without,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.epoch_starts import (
    EPOCH_THRESHOLDS,
    epoch_in_every_step,
    epoch_start_evidence,
    one_iterator_fix,
    starts_workers,
)
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity

_WAIT_LEFT_WORST = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    spread, step, model = a.by_rank(STEP_EPOCH_START_S), a.value(STEP_TIME_S), model_of(a)
    loader, epochs = training_loader(a, spread), max(a.by_rank(EPOCH_STARTS).values())
    if loader is None or epochs < t["epochs"]:
        return Clear(RULE.id)
    ordering = starts_workers(a, loader) and not _is_stream(loader)
    if ordering and common(spread) >= t["start"] * step and not a.by_rank(EPOCH_INDEX_S):
        return NotMeasured(RULE.id, (EPOCH_INDEX_S,))
    avoidable = _ordering(a) if ordering else _avoidable(a, loader)
    lost = common(avoidable)
    level = severity(lost / step)
    if lost < t["start"] * step or level is None:
        return Clear(RULE.id)
    best, worst = (
        step_without(a, "input_wait", {r: share * s for r, s in avoidable.items()}) for share in (1.0, _WAIT_LEFT_WORST)
    )
    left = "no sampling order to draw" if ordering else "only the time to make a batch"
    return Finding(
        rule=RULE.id,
        title="Data loading: slow epoch start, waiting for "
        + ("the sampling order" if ordering else "the first batch"),
        severity=level,
        confidence=confidence(a, cap=0.9 if epochs > t["epochs"] else 0.75),
        seconds_per_step=lost,
        evidence=_evidence(a, lost, t, ordering=ordering),
        fixes=(one_iterator_fix(loader) if epoch_in_every_step(a) else _fix(a, loader),),
        saving=model.saving(model.at_best(best), worst, f"epochs that begin with {left}, or half of it"),
    )


def _evidence(a: Analysis, lost: float, t: Thresholds, *, ordering: bool) -> tuple[Evidence, ...]:
    if ordering:
        index, note = mean(a.by_rank(EPOCH_INDEX_S)), "to draw the order of an epoch after its workers have started"
        start = epoch_start_evidence(a, lost, t, "the order of samples, in the epoch starts")
        return (start, Evidence.of(EPOCH_INDEX_S, index, note=note, form="explains"))
    walls, start = a.by_rank(FETCH_WALL_S), epoch_start_evidence(a, lost, t)
    if not walls:
        return (start,)
    return (
        start,
        Evidence.of(FETCH_WALL_S, mean(walls), note="to make a batch at any other time", form="explains"),
    )


def _is_stream(loader: LoaderFacts) -> bool:
    return loader.dataset.get("length") is None


def _ordering(a: Analysis) -> dict[int, float]:
    """Seconds per step, by rank, for drawing the order once new workers run. The rest of the epoch's start belongs to DAT006."""
    starts, index = a.by_rank(EPOCH_START_S), a.by_rank(EPOCH_INDEX_S)
    spread = a.by_rank(STEP_EPOCH_START_S)
    return {r: s * min(1.0, index.get(r, 0.0) / starts[r]) if starts.get(r) else 0.0 for r, s in spread.items()}


def _avoidable(a: Analysis, loader: LoaderFacts) -> dict[int, float]:
    """Excess of an epoch's start (with new workers: of their first batch) over a usual batch, in seconds per step by rank.

    All workers start at once: if they outnumber the cores, each batch takes longer in proportion.
    """
    walls, firsts, workers = (a.by_rank(name) for name in (FETCH_WALL_S, EPOCH_FIRST_BATCH_S, LOADER_WORKERS))
    crowd = max(1.0, max(workers.values(), default=0.0) * a.ranks_of_host / (a.get(CPU_ALLOWED_CORES) or 1.0))
    found = {}
    for rank, spread in a.by_rank(STEP_EPOCH_START_S).items():
        start = a.get(EPOCH_START_S, rank) or spread
        first_s = firsts.get(rank, 0.0) if starts_workers(a, loader) else start
        beyond = max(0.0, first_s - crowd * walls.get(rank, 0.0))
        found[rank] = spread * min(1.0, beyond / start) if start > 0 else 0.0
    return found


def _fix(a: Analysis, loader: LoaderFacts) -> Fix:
    if _is_stream(loader):
        change = "a smaller shuffle buffer, or one filled by several workers; a stream without end, its epochs counted in steps"
        return Fix("restart the stream less often, or with a smaller buffer", change, where_of(loader), "small change")
    change = "draw the order once, in the background, or in larger units (chunks, shards)"
    return Fix("reduce the cost of the sampling order", change, sampler_of(a, loader), "small change")


RULE = rule(
    __name__,
    "Data loading: slow epoch start",
    check,
    needs=(STEP_TIME_S, STEP_EPOCH_START_S, EPOCH_STARTS),
    thresholds=EPOCH_THRESHOLDS,
)
