"""Epochs begin with a wait.

What it does: finds training whose epochs begin with a wait much longer than a batch takes to make, for other reasons than workers that have
to be started.

Why it is slow: a stream fills its shuffle buffer, opens its shards or seeks to its place before it yields a first sample; a sampler makes
the order of a very large data set. Nothing is computed meanwhile, and with short epochs it happens often.

Evidence: what the first fetch of an epoch takes beyond a usual one, spread over the steps, and how many epochs were seen; how long a batch
takes to make. Where workers are started anew: what the order of an epoch takes.

Fix: begin less often: one stream without end whose epochs are counted in steps; a smaller shuffle buffer, filled by several workers; an
order that is made once, or in the background.

Estimate: making one batch stays, for the queue is empty then, in all workers at once; of the rest at worst half goes, at best all. Where
workers are started anew it is of a stream their first batch, of other data the order that is made once they stand.

False alarms: workers that are started anew: DAT006. A data set whose first epoch is read from a cold disk: a single epoch is not judged.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import common, mean, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.data_loading.epoch_starts import (
    BEGINS,
    begin_evidence,
    begin_once,
    every_step_begins,
    starts_workers,
)
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity

_HALF = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    spread, step, model = a.by_rank("step.epoch_start_s"), a.value("step.time_s"), model_of(a)
    loader, epochs = training_loader(a, spread), max(a.by_rank("epoch.starts").values())
    if loader is None or epochs < t["epochs"]:
        return Clear(RULE.id)
    ordering = starts_workers(a, loader) and not _is_stream(loader)
    if ordering and common(spread) >= t["start"] * step and not a.by_rank("epoch.index_s"):
        return NotMeasured(RULE.id, ("epoch.index_s",))
    avoidable = _ordering(a) if ordering else _avoidable(a, loader)
    lost = common(avoidable)
    level = severity(lost / step)
    if lost < t["start"] * step or level is None:
        return Clear(RULE.id)
    best, worst = (
        step_without(a, "input_wait", {r: share * s for r, s in avoidable.items()}) for share in (1.0, _HALF)
    )
    left = "no order to make" if ordering else "no more than making a batch"
    return Finding(
        rule=RULE.id,
        title="Each epoch begins with a wait for " + ("the order of its samples" if ordering else "its first batch"),
        severity=level,
        confidence=confidence(a, cap=0.9 if epochs > t["epochs"] else 0.75),
        seconds_per_step=lost,
        evidence=_evidence(a, lost, t, ordering=ordering),
        fixes=(begin_once(loader) if every_step_begins(a) else _fix(loader),),
        saving=model.saving(model.at_best(best), worst, f"epochs that begin with {left}, or half of it"),
    )


def _evidence(a: Analysis, lost: float, t: Thresholds, *, ordering: bool) -> tuple[Evidence, ...]:
    if ordering:
        index, note = mean(a.by_rank("epoch.index_s")), "to make the order of an epoch once its workers stand"
        begin = begin_evidence(a, lost, t, "the order of samples, in the begin of epochs")
        return (begin, Evidence("epoch.index_s", index, "s", None, note))
    walls, begin = a.by_rank("fetch.wall_s"), begin_evidence(a, lost, t)
    if not walls:
        return (begin,)
    return (begin, Evidence("fetch.wall_s", mean(walls), "s", None, "to make a batch at any other time"))


def _is_stream(loader: LoaderFacts) -> bool:
    return loader.dataset.get("length") is None


def _ordering(a: Analysis) -> dict[int, float]:
    """By rank, seconds of a step: the order that is made once new workers stand. The rest of the begin is theirs (DAT006)."""
    starts, index = a.by_rank("epoch.start_s"), a.by_rank("epoch.index_s")
    spread = a.by_rank("step.epoch_start_s")
    return {r: s * min(1.0, index.get(r, 0.0) / starts[r]) if starts.get(r) else 0.0 for r, s in spread.items()}


def _avoidable(a: Analysis, loader: LoaderFacts) -> dict[int, float]:
    """By rank, seconds of a step: what the begin of an epoch takes beyond a usual batch, or of new workers their first batch does.

    All workers begin at once then: on fewer cores than they are each batch takes as much longer.
    """
    walls, firsts, workers = (a.by_rank(name) for name in ("fetch.wall_s", "epoch.first_batch_s", "loader.workers"))
    crowd = max(1.0, max(workers.values(), default=0.0) * a.ranks_of_host / (a.get("cpu.allowed_cores") or 1.0))
    found = {}
    for rank, spread in a.by_rank("step.epoch_start_s").items():
        start = a.get("epoch.start_s", rank) or spread
        begins = firsts.get(rank, 0.0) if starts_workers(a, loader) else start
        beyond = max(0.0, begins - crowd * walls.get(rank, 0.0))
        found[rank] = spread * min(1.0, beyond / start) if start > 0 else 0.0
    return found


def _fix(loader: LoaderFacts) -> Fix:
    if _is_stream(loader):
        change = "a smaller shuffle buffer, or one filled by several workers; a stream without end, its epochs counted in steps"
        return Fix("let the stream begin less often, or with less", change, where_of(loader), "small change")
    change = "make the order once, in the background, or of larger pieces (chunks, shards)"
    return Fix("make the order of the samples cheaper", change, where_of(loader), "small change")


RULE = rule(
    __name__,
    "epochs begin with a wait",
    check,
    needs=("step.time_s", "step.epoch_start_s", "epoch.starts"),
    explains=("COM002", "RUN004"),
    thresholds=BEGINS,
)
