"""Batch preparation in the training loop.

What it does: finds loops that compute something between fetching a batch and calling the model: augmentation, mixing,
tokenising, normalising, labels made by hand; and iterators other than a DataLoader that make the batches in the training thread.

Fires when: the training thread computes ≥ 5 % of the step in the script's own lines between the batch and the model (augmentation,
tokenising); on a GPU, while nothing is queued there.

Why it is slow: the training thread does this work, so the model waits for it in each step, and a GPU has nothing queued
meanwhile. Loader workers would do it for the next batches while this one is trained on.

Evidence: a profile of the training thread's stacks: the share of the samples in the script's own lines after the fetch
and before the first line that calls the model. On a GPU at most the time in which it had nothing queued.

Fix: move it to the data set or `collate_fn`, with as many workers as it needs; with a GPU it can also run there, on
whole batches.

Estimate: the step without it, as far as the cores can do the same work during training. The share is uncertain by one
and a half standard errors of the samples, and at worst a quarter of it remains. Without a DataLoader it is not known
what workers would cost: between nothing and all of it.

False alarms: below 5 % of the step the rule stays silent. Work inside the model's own forward, or on the same line as
its call, belongs to the model; waiting belongs to LOP007; copies to the GPU belong to H2D001 and H2D002. In loops without
a DataLoader only what they iterate over counts (`for batch in table.iter(64)`): other data they make themselves on purpose, as
rollouts are.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_PREPARING_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import batches_made, model_of
from rn50_advisor.rules.data_loading.worker_supply import GAIN_RATIO_MIN
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, step_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PREPARATION_LEFT_WORST = 0.25  # of it, at worst
_WORKER_MARGIN = 1.15  # times the average number of workers needed: batches take different times


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    found = own_code(
        RULE.id,
        a,
        STEP_PREPARING_S,
        a.preparing_lines,
        least=t["preparing"],
        doing="computes between the batch and the model",
    )
    if not isinstance(found, OwnCode):
        return found
    model = model_of(a)
    best, worst = (
        max(step_without(a, found.seconds, part), model.cpu_floor_s())
        for part in (1.0 + found.error, 1.0 - max(_PREPARATION_LEFT_WORST, found.error))
    )
    fix, saving = (
        _to_workers(a, found, best),
        model.saving(model.at_best(best), worst, "loader workers prepare the batches"),
    )
    unfed = not a.by_rank(LOADER_WORKERS)
    if unfed or saving.speedup[1] < GAIN_RATIO_MIN:
        fix, free = _read_ahead(found) if unfed else _cheaper(found), model.step_s - found.lost_s
        basis = "at best no cost" if unfed else "at best no cost: no core is left for workers"
        saving = model.saving(free, model.step_s, basis)
    title = "Batch preparation in the training loop"
    return finding_of(RULE.id, a, found, title, fix=fix, saving=saving)


def _to_workers(a: Analysis, found: OwnCode, step_s: float) -> Fix:
    made, walls = batches_made(a), a.by_rank(FETCH_WALL_S)
    work_s = max(s + made.get(rank, 1.0) * walls.get(rank, 0.0) for rank, s in found.seconds.items())
    workers = max(1, math.ceil(_WORKER_MARGIN * work_s / max(step_s, 1e-9)))
    return Fix(
        "move this line to the loader workers",
        f"in the data set's __getitem__ or in collate_fn, with {counted(workers, 'worker')} or more (num_workers={workers})",
        found.where,
        "small change",
    )


def _read_ahead(found: OwnCode) -> Fix:
    return Fix(
        "make what the loop iterates over cheaper, or have workers make it ahead",
        "whole batches at once, in the order in which they lie in memory or on disk; or a DataLoader over it with num_workers=2",
        found.where,
        "small change",
    )


def _cheaper(found: OwnCode) -> Fix:
    return Fix(
        "make this line cheaper: workers would take cores from compute",
        "on whole batches instead of per sample, or once before training",
        found.where,
        "small change",
    )


RULE = rule(
    __name__,
    "Batch preparation in the training loop",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"preparing": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
