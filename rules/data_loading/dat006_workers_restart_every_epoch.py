"""Data loading: workers restarted every epoch.

What it does: finds a training DataLoader without `persistent_workers`, or one created again for each epoch, that spends
a noticeable share of each epoch on starting it.

Fires when: workers start in each epoch (no `persistent_workers`, or a loader created again) or in each step, and that takes ≥ 5 % of the
time.

Why it is slow: the loader stops its worker processes at the end of an epoch and starts new ones at the next. Each new
worker opens its files again, and the loop waits until the first batch is ready. Nothing is computed meanwhile.

Evidence: how much longer the first fetch of an epoch takes than a usual one, spread over the steps; how much longer the first steps
compute, while new workers take cores and fill their caches again;
`persistent_workers=False` at file and line.

Fix: `persistent_workers=True`, with the DataLoader created once, before the loop over epochs. If every step begins an
epoch (`next(iter(loader))`, a data set of one batch), use one iterator for all steps, or longer epochs.

Estimate: the wait for the first batch of an epoch remains, because the queue is empty then. At worst it takes as long
as in new workers, and each worker is waited for once more; at best as long as any other batch. The order of samples is
drawn again in either case. The extra computing time of an epoch's first steps shrinks by half or disappears: forked
workers cause a copy of each page that is written to. At best all steps also become shorter, because a waiting thread
resumes with cold caches. With one iterator for all steps no epoch start remains, and at best no kernel time in
computing.

False alarms: a single epoch. A sampler that prepares its order in the training process is not the workers' cost and is
excluded. An IterableDataset also starts again in persistent workers: for it, only starting and stopping the workers
counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import (
    EPOCH_FIRST_BATCH_S,
    EPOCH_INDEX_S,
    EPOCH_START_COMPUTE_S,
    EPOCH_START_S,
    EPOCH_STARTS,
    STEP_EPOCH_START_S,
    STEP_INPUT_WAIT_S,
    STEP_SYSTEM_S,
    STEP_TIME_S,
)
from rn50_advisor.rules.analysis_reading import common, mean, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.epoch_starts import (
    EPOCH_THRESHOLDS,
    epoch_in_every_step,
    epoch_start_evidence,
    one_iterator_fix,
    starts_workers,
)
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity

# Share taken off the lower end of the gain: two runs of one job differ by 3 to 5 %, as much as many epoch starts cost.
_GAIN_UNCERTAINTY = 0.25
_COMPUTING_SHOWN = 0.01  # of the time


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spread, step, model = a.by_rank(STEP_EPOCH_START_S), a.value(STEP_TIME_S), model_of(a)
    loader = training_loader(a, spread)
    epochs = max(a.by_rank(EPOCH_STARTS).values())
    slower = _slower(a)
    cost = common({rank: s + slower[rank] for rank, s in spread.items()})
    if loader is None or not starts_workers(a, loader):
        return Clear(RULE.id)
    often = "step" if epoch_in_every_step(a) else "epoch"
    if often == "step":
        best, worst = (_with_one_iterator(a, copied=copied) for copied in (True, False))
        basis = "one iterator for all steps"
    else:
        best, worst = (_after(a, loader, first_like_new=new) for new in (False, True))
        basis = "persistent workers; the wait for the first batch of an epoch remains"
    best = model.at_best(best)
    worst += _GAIN_UNCERTAINTY * (step - worst)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if epochs < t["epochs"] or cost < t["start"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Data loading: {loader.num_workers} worker{'s restart' if loader.num_workers > 1 else ' restarts'} in every {often}",
        severity=level,
        confidence=confidence(a, cap=0.9 if epochs > t["epochs"] else 0.75),
        seconds_per_step=lost,
        evidence=(
            epoch_start_evidence(a, common(spread), t),
            *_computing(a, slower),
            _workers(loader),
        ),
        fixes=(*((one_iterator_fix(loader),) if often == "step" else ()), _fix(loader)),
        saving=model.saving(best, worst, basis),
    )


def _slower(a: Analysis) -> dict[int, float]:
    """Seconds per step by which computing takes longer at the starts of epochs, while new workers take cores and memory."""
    starts, slow = a.by_rank(EPOCH_START_S), a.by_rank(EPOCH_START_COMPUTE_S)
    spread = a.by_rank(STEP_EPOCH_START_S)
    return {rank: slow.get(rank, 0.0) * s / starts[rank] if starts.get(rank) else 0.0 for rank, s in spread.items()}


def _computing(a: Analysis, slower: Mapping[int, float]) -> tuple[Evidence, ...]:
    share = common(slower) / a.value(STEP_TIME_S)
    if share < _COMPUTING_SHOWN:
        return ()
    note = f"slower compute in the first steps of each epoch: another {100 * share:.0f} % of the time"
    return (Evidence.of(EPOCH_START_COMPUTE_S, mean(a.by_rank(EPOCH_START_COMPUTE_S)), None, note),)


def _workers(loader: LoaderFacts) -> Evidence:
    workers = float(loader.num_workers)
    if loader.persistent_workers:
        why = f"persistent_workers=True, but the loader was created {loader.made} times"
        return Evidence.of(LOADER_WORKERS, workers, note=why)
    why = "persistent_workers=False: stopped and restarted"
    return Evidence.of(LOADER_WORKERS, workers, note=why, form="explains")


def _fix(loader: LoaderFacts) -> Fix:
    change = CallChange.of("DataLoader", num_workers=loader.num_workers, persistent_workers=True)
    where, more = where_of(loader), ", created once before the loop over epochs"
    if loader.persistent_workers:
        title = "create the DataLoader once, before the loop over epochs"
        return Fix.of(title, change, where, "small change", more=more)
    return Fix.of("persistent_workers=True", change, where, "one line", more=more)


def _with_one_iterator(a: Analysis, *, copied: bool) -> float:
    """Step time if workers start once for all steps; `copied`: kernel time of computing was spent copying pages shared with forks."""
    model, system = model_of(a), a.by_rank(STEP_SYSTEM_S)
    changes = {}
    for rank, spread in a.by_rank(STEP_EPOCH_START_S).items():
        own = model.own[rank]
        changes[rank, "input_wait"] = max(0.0, own["input_wait"] - spread)
        changes[rank, "forward"] = max(0.0, own.get("forward", 0.0) - (system.get(rank, 0.0) if copied else 0.0))
    return model.step_if(changes)


def _after(a: Analysis, loader: LoaderFacts, *, first_like_new: bool) -> float:
    """Step time with persistent workers, whose first batch takes as long as a new worker's, or as any other."""
    model, walls = model_of(a), a.by_rank(FETCH_WALL_S)
    index, first, usual = (a.by_rank(name) for name in (EPOCH_INDEX_S, EPOCH_FIRST_BATCH_S, STEP_INPUT_WAIT_S))
    slow = _slower(a)
    again = first_like_new or loader.dataset.get("length") is None
    changes = {}
    for rank, spread in a.by_rank(STEP_EPOCH_START_S).items():
        start = a.get(EPOCH_START_S, rank) or spread
        new = first.get(rank, walls.get(rank, 0.0))
        stays = index.get(rank, 0.0) + (new if again else min(new, walls.get(rank, new)))
        if first_like_new:
            # the loop announces the new epoch to each worker and waits for its answer: one hand-over each
            stays += loader.num_workers * usual.get(rank, 0.0)
        goes = max(0.0, 1.0 - stays / start) if start else 0.0
        changes[rank, "input_wait"] = model.own[rank]["input_wait"] - goes * spread
        slower = slow[rank] * (0.5 if first_like_new else 1.0)
        changes[rank, "forward"] = model.own[rank].get("forward", 0.0) - slower
    return model.step_if(changes)


RULE = rule(
    __name__,
    "Data loading: workers restarted every epoch",
    check,
    needs=(STEP_TIME_S, STEP_EPOCH_START_S, EPOCH_STARTS, LOADER_WORKERS),
    thresholds=EPOCH_THRESHOLDS,
)
