"""Data loading: garbage collection in the workers.

What it does: finds training that waits for batches while Python's cyclic garbage collector interrupts the workers that
make them.

Fires when: without the collections of its workers, the step would be shorter by ≥ 2 %.

Why it is slow: a full collection visits every object that may be part of a cycle. A worker inherits those of the
training process, among them a data set's lists and dicts, and creates new ones with each sample. Meanwhile it makes no
batch, and batches are handed out in order: all later ones wait. The worker's thread that sends finished batches stands
still, too. Visiting an object also writes to its page, which the worker then has to copy.

Evidence: the part of the wait for batches that collections took, in the same batch or, once it was made, in its
worker's next one; their share of batch preparation time.

Fix: no `gc.collect()` in the data set's own code. Otherwise `gc.freeze()` and `gc.set_threshold(100_000, 10, 10)` in
`worker_init_fn`: what the worker has when it starts is not visited again, and most new objects are gone before they
are. Or hold the data set in arrays, which have no objects to visit.

Estimate: the step without that wait and with warm caches, or with a third of that wait, but never shorter than the
workers' rate without collections.

False alarms: collections in workers that the loop does not wait for cost nothing, and are not counted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_COLLECTING_S,
    FETCH_GC_SHARE,
    FETCH_WALL_S,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import better_than_workers, model_of, no_collections, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the collections that remains at worst. Samples of lists out of 600,000 dicts took 8.4 ms a batch, 68 % of it in collections;
# with a frozen heap 3.8 ms, with the higher threshold too 2.3 ms, without any.
_LEFT = 0.35


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    collecting, step = a.by_rank(FETCH_COLLECTING_S), a.value(STEP_TIME_S)
    best, worst = _step_without(a, 1.0), _step_without(a, 1.0 - _LEFT)
    lost = step - best
    level = severity(lost / step)
    if lost < t["share"] * step or level is None:
        return Clear(RULE.id)
    rank = max(collecting, key=lambda r: collecting[r])
    ranks = tuple(r for r in collecting if collecting[r] >= 0.5 * collecting[rank])
    share = a.get(FETCH_GC_SHARE, rank) or 0.0
    return Finding(
        rule=RULE.id,
        title="Data loading: garbage collection in the workers",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(ranks) == len(a.by_rank(STEP_INPUT_WAIT_S)) else ranks),
        evidence=(
            Evidence.of(
                FETCH_COLLECTING_S,
                collecting[rank],
                t["share"] * step,
                f"{100 * collecting[rank] / step:.1f} % of the step is spent waiting for a batch whose worker collects garbage",
            ),
            Evidence.of(FETCH_GC_SHARE, share, None, "of batch preparation time", form="explains"),
        ),
        fixes=_fixes(a, a.training_loader(rank)),
        saving=model_of(a).saving(model_of(a).at_best(best), worst, "no wait for garbage collection, or a third of it"),
        circumstances=frozenset({"better than workers"} if a.workers and better_than_workers(a, best) else ()),
    )


def _fixes(a: Analysis, loader: LoaderFacts | None) -> tuple[Fix, ...]:
    freeze = Fix(
        "gc.freeze() and a higher threshold at worker start",
        "def freeze(worker):\n    gc.freeze()\n    gc.set_threshold(100_000, 10, 10)\nDataLoader(..., worker_init_fn=freeze)",
        where_of(loader),
        "small change",
    )
    arrays = "keep the data set in arrays (numpy, torch, pyarrow), which the collector does not traverse"
    own = no_collections(a)
    return ((own,) if own else ()) + (freeze, Fix(arrays, "", where_of(loader), "larger change"))


def _step_without(a: Analysis, given_back: float) -> float:
    """Step time if this share of the wait for collections is gone; the workers' rate without them is a limit."""
    model, walls, workers = model_of(a), a.by_rank(FETCH_WALL_S), a.by_rank(LOADER_WORKERS)
    shares, batches = a.by_rank(FETCH_GC_SHARE), a.by_rank(STEP_BATCHES)
    changes, spared_s = {}, 0.0
    for rank, collecting in a.by_rank(FETCH_COLLECTING_S).items():
        wait = model.own[rank]["input_wait"]
        rest = model.own_s(rank) - wait + model.wire_s
        making_s = batches.get(rank, 1.0) * walls.get(rank, 0.0)
        collected_s = given_back * shares.get(rank, 0.0) * making_s
        rate = (making_s - collected_s) / max(workers.get(rank, 1.0), 1.0)
        changes[rank, "input_wait"] = min(wait, max(wait - given_back * collecting, rate - rest))
        spared_s += collected_s
    left_s = None if model.job_cpu_s is None else max(0.0, model.job_cpu_s - spared_s)
    return model.step_if(changes, floor_s=min(model.cpu_floor_s(left_s), model.step_s))


RULE = rule(
    __name__,
    "Data loading: garbage collection in the workers",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_COLLECTING_S),
    thresholds={"share": Threshold(0.02, "severity 'low' begins at 2 % of the step")},
)
