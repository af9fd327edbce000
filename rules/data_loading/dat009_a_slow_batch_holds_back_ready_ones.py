"""Data loading: slow batch blocks ready batches.

What it does: finds training that waits for a batch that is still being made while later batches are ready.

Fires when: ≥ 5 % of the step is spent waiting for a batch while a later one is ready: one of twice the usual time, or of a worker whose
batches take 1.25 × the others'.

Why it is slow: a DataLoader delivers batches in index order. One batch with a large image, a cold file or a retry stops
the loop, however much the other workers have finished meanwhile. A worker whose shard is larger or further away than
the others' has the same effect.

Evidence: the time in which the loop waited for one batch while a later one was already made; how long these batches
took against the median, or one worker's batches against those of the others.

Fix: for one slow worker, shards of even cost. Otherwise `in_order=False` (torch 2.7 and newer; the order of samples
then differs from run to run), a larger `prefetch_factor` if it fits into /dev/shm and memory, or samples of even
cost.

Estimate: the step without that wait, but never shorter than the workers' mean rate or the CPU work divided by the
allowed cores allows.

False alarms: workers that are too slow altogether leave no batch ready. Workers that are briefly out of step are not
slow: their batches took about the median. Batches that garbage collections made slow belong to DAT020.
"""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_BEHIND_S,
    FETCH_COLLECTING_S,
    FETCH_SLOW_RATIO,
    FETCH_WALL_S,
    FETCH_WORKER_LAG,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import PREFETCH, limits_beside_cores, model_of, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_IN_ORDER_SINCE = (2, 7)
_COLLECTED_SHARE_MIN = 0.5  # of the wait: from there on garbage collections explain it


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    behind, ratio, step = a.by_rank(FETCH_BEHIND_S), a.by_rank(FETCH_SLOW_RATIO), a.value(STEP_TIME_S)
    rank = max(behind, key=lambda r: behind[r])
    best, worst = _after(a, 1.0), _after(a, 0.5)
    lag = a.get(FETCH_WORKER_LAG, rank) or 1.0
    if lag >= t["lag"]:  # no slow batch remains to wait for
        best = model_of(a).at_best(best)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    slow = ratio.get(rank, 1.0) >= t["slow"] or lag >= t["lag"]
    collected = (a.get(FETCH_COLLECTING_S, rank) or 0.0) >= _COLLECTED_SHARE_MIN * behind[rank]
    if behind[rank] < t["behind"] * step or not slow or collected or level is None:
        return Clear(RULE.id)
    ranks = tuple(r for r in behind if behind[r] >= t["behind"] * step)
    return Finding(
        rule=RULE.id,
        title="Data loading: ready batches wait behind " + ("one slow worker" if lag >= t["lag"] else "slow batches"),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(ranks) == len(a.by_rank(STEP_INPUT_WAIT_S)) else ranks),
        evidence=(
            Evidence.of(
                FETCH_BEHIND_S,
                behind[rank],
                t["behind"] * step,
                f"{100 * behind[rank] / step:.0f} % of the step is spent waiting for one batch while a later one is ready",
            ),
            Evidence.of(
                FETCH_WORKER_LAG,
                lag,
                t["lag"],
                "the time of the other workers' batches",
                unit="×",
                form="explains",
            )
            if lag >= t["lag"]
            else Evidence.of(
                FETCH_SLOW_RATIO,
                ratio.get(rank, 1.0),
                t["slow"],
                "the median time of a batch",
                unit="×",
                form="explains",
            ),
        ),
        fixes=(_even_shards(a, rank),) if lag >= t["lag"] else _fixes(a, rank),
        saving=model_of(a).saving(best, worst, "ready batches are used immediately, at the workers' current rate"),
    )


def _after(a: Analysis, given_back: float) -> float:
    """Step time if this much of the wait behind slow batches is gone, at the present workers' rate."""
    model, walls, workers = model_of(a), a.by_rank(FETCH_WALL_S), a.by_rank(LOADER_WORKERS)
    changes = {}
    for rank, behind in a.by_rank(FETCH_BEHIND_S).items():
        wait = model.own[rank]["input_wait"]
        rest = model.own_s(rank) - wait + model.wire_s
        rate = walls.get(rank, 0.0) / max(workers.get(rank, 1.0), 1.0)
        changes[rank, "input_wait"] = min(wait, max(wait - given_back * behind, rate - rest))
    return model.step_if(changes, floor_s=min(model.cpu_floor_s(), model.step_s))


def _even_shards(a: Analysis, rank: int) -> Fix:
    """Even shards: delivery out of order gains nothing if each worker has to get through a part of its own."""
    change = "many small shards assigned round-robin; or split the slow shards or move them closer"
    where = where_of(a.training_loader(rank))
    return Fix("give all workers shards of equal cost", change, where, "small change")


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    loader = a.training_loader(rank)
    where, count = where_of(loader), loader.num_workers if loader else 0
    ahead = (loader.prefetch_factor if loader else None) or PREFETCH
    more = _as_deep_as_fits(a, count, ahead)
    deeper = Fix.of(
        f"prefetch_factor={ahead} → {more}",
        CallChange.of("DataLoader", num_workers=count, prefetch_factor=more),
        where,
        "one line",
        more=": more batches are ready during a slow one",
    )
    even = Fix("equalize sample cost: resize or split large samples beforehand", "", where, "larger change")
    rest = (deeper, even) if more > ahead else (even,)
    if _torch_version(a) < _IN_ORDER_SINCE:
        return rest
    change, then = (
        CallChange.of("DataLoader", num_workers=count, in_order=False),
        "; the order of samples then differs from run to run",
    )
    return (Fix.of("in_order=False", change, where, "one line", more=then), *rest)


def _as_deep_as_fits(a: Analysis, workers: int, ahead: int) -> int:
    """Twice the worker's prefetched batches, or as many as fit into memory and /dev/shm."""
    fits = (n for n in range(2 * ahead, ahead, -1) if all(fit >= workers for _, fit in limits_beside_cores(a, n)))
    return next(fits, ahead)


def _torch_version(a: Analysis) -> tuple[int, int]:
    """The job's torch version; an unknown one counts as old."""
    texts = (facts.get("torch") or "" for facts in a.rank_facts.values())
    found = [match for text in texts if (match := re.match(r"(\d+)\.(\d+)", text))]
    return min(((int(m[1]), int(m[2])) for m in found), default=(0, 0))


RULE = rule(
    __name__,
    "Data loading: slow batch blocks ready batches",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_BEHIND_S, FETCH_SLOW_RATIO),
    thresholds={
        "behind": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "slow": Threshold(2.0, "times the median: batches take half as long again by chance"),
        "lag": Threshold(1.25, "times the other workers' batches, and three standard errors apart: not by chance"),
    },
)
