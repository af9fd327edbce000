"""Workers restart every epoch.

What it does: finds a training DataLoader without `persistent_workers`, or made anew for each epoch, that spends a noticeable share of each
epoch on its begin.

Why it is slow: at the end of an epoch the loader ends its worker processes, at the next one it starts them anew; each opens its files
again, and the loop waits until the first batch is made. Nothing is computed meanwhile.

Evidence: what the first fetch of an epoch takes beyond a usual one, spread over the steps; `persistent_workers=False` at file and line.

Fix: `persistent_workers=True`, with the DataLoader made once, before the loop over epochs. Where every step begins an epoch
(`next(iter(loader))`, a data set of one batch): one iterator for all of them, or longer epochs.

Estimate: of the time at the begin of an epoch the first batch stays, for the queue is empty then. At worst it takes as long as in new
workers and each worker is waited for once more, at best as long as any other batch. The order of samples is made anew in either case.
What the first steps of an epoch compute longer goes by half or altogether: forked workers make each page that is written to a copy. At
best all steps are shorter besides, for who waits starts with cold caches. One iterator for all steps leaves no begin at all, and at best
nothing of what computing takes in the kernel.

False alarms: a single epoch. A sampler that prepares its order in the training process is no work of the workers and left out. An
IterableDataset begins anew in workers that live on, too: for it only their start and end are counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.epoch_starts import (
    BEGINS,
    begin_evidence,
    begin_once,
    every_step_begins,
    starts_workers,
)
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity

# Of the gain, at the pessimistic end: two runs of one job differ by 3 to 5 %, as much as many an epoch's begin.
_UNSURE = 0.25


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spread, step, model = a.by_rank("step.epoch_start_s"), a.value("step.time_s"), model_of(a)
    loader = training_loader(a, spread)
    epochs = max(a.by_rank("epoch.starts").values())
    cost = common(spread)
    if loader is None or not starts_workers(a, loader):
        return Clear(RULE.id)
    often = "step" if every_step_begins(a) else "epoch"
    if often == "step":
        best, worst = (_begun_once(a, copied=copied) for copied in (True, False))
        basis = "one iterator for all steps"
    else:
        best, worst = (_after(a, loader, first_like_new=new) for new in (False, True))
        basis = "workers that live on; the first batch of an epoch is still waited for"
    best = model.at_best(best)
    worst += _UNSURE * (step - worst)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if epochs < t["epochs"] or cost < t["start"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"{loader.num_workers} worker{'s start' if loader.num_workers > 1 else ' starts'} anew in every {often}",
        severity=level,
        confidence=confidence(a, cap=0.9 if epochs > t["epochs"] else 0.75),
        seconds_per_step=lost,
        evidence=(
            begin_evidence(a, cost, t),
            _workers(loader),
        ),
        fixes=(*((begin_once(loader),) if often == "step" else ()), _fix(loader)),
        saving=model.saving(best, worst, basis),
    )


def _workers(loader: LoaderFacts) -> Evidence:
    why = (
        f"persistent_workers=True, but of a loader that was made {loader.made} times"
        if loader.persistent_workers
        else "persistent_workers=False: ended and started anew"
    )
    return Evidence("loader.workers", float(loader.num_workers), "workers", None, why)


def _fix(loader: LoaderFacts) -> Fix:
    change = f"DataLoader(..., num_workers={loader.num_workers}, persistent_workers=True), made once before the loop over epochs"
    if loader.persistent_workers:
        return Fix("make the DataLoader once, before the loop over epochs", change, where_of(loader), "small change")
    return Fix("persistent_workers=True", change, where_of(loader), "one line")


def _begun_once(a: Analysis, *, copied: bool) -> float:
    """Step time where workers start once for all steps; `copied`: what computing takes in the kernel was for pages that forks share."""
    model, system = model_of(a), a.by_rank("step.system_s")
    changes = {}
    for rank, spread in a.by_rank("step.epoch_start_s").items():
        own = model.own[rank]
        changes[rank, "input_wait"] = max(0.0, own["input_wait"] - spread)
        changes[rank, "forward"] = max(0.0, own.get("forward", 0.0) - (system.get(rank, 0.0) if copied else 0.0))
    return model.step_if(changes)


def _after(a: Analysis, loader: LoaderFacts, *, first_like_new: bool) -> float:
    """Step time when workers live on, their first batch taking as long as a new worker's, or as any other."""
    model, walls = model_of(a), a.by_rank("fetch.wall_s")
    index, first, usual = (a.by_rank(name) for name in ("epoch.index_s", "epoch.first_batch_s", "step.input_wait_s"))
    slow = a.by_rank("epoch.start_compute_s")
    again = first_like_new or loader.dataset.get("length") is None
    changes = {}
    for rank, spread in a.by_rank("step.epoch_start_s").items():
        start = a.get("epoch.start_s", rank) or spread
        new = first.get(rank, walls.get(rank, 0.0))
        stays = index.get(rank, 0.0) + (new if again else min(new, walls.get(rank, new)))
        if first_like_new:
            # the loop sends each worker word of the new epoch and waits for its answer: a hand-over each
            stays += loader.num_workers * usual.get(rank, 0.0)
        goes = max(0.0, 1.0 - stays / start) if start else 0.0
        changes[rank, "input_wait"] = model.own[rank]["input_wait"] - goes * spread
        slower = slow.get(rank, 0.0) * (spread / start if start else 0.0) * (0.5 if first_like_new else 1.0)
        changes[rank, "forward"] = model.own[rank].get("forward", 0.0) - slower
    return model.step_if(changes)


RULE = rule(
    __name__,
    "workers restart every epoch",
    check,
    needs=("step.time_s", "step.epoch_start_s", "epoch.starts", "loader.workers"),
    explains=("COM002",),
    thresholds=BEGINS,
)
