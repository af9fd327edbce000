"""A slow batch holds back ready ones.

What it does: finds training that waits for a batch that is still being made while later ones lie ready.

Why it is slow: a DataLoader hands batches out in the order of their indices. One batch with a large image, a cold file or a retry in it
stops the loop, however much the other workers have made meanwhile. So does a worker whose shard is larger or further away than the others'.

Evidence: the time in which the loop waited for one batch while a later one was made already; what those batches took against the median,
or what one worker's batches take against those of the others.

Fix: for one slow worker, shards of even cost. Else `in_order=False` (torch 2.7 and newer; the order of samples is then not the same in
every run), a larger `prefetch_factor` as far as /dev/shm and memory have room for more, or samples of even cost.

Estimate: that wait given back, but never a step shorter than the workers' mean rate or the CPU work over the allowed cores allow.

False alarms: workers that are too slow altogether leave nothing ready. Workers out of step by a moment are not slow: their batches took
about the median.
"""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import PREFETCH, model_of, room_beside_cores, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_IN_ORDER_SINCE = (2, 7)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    behind, ratio, step = a.by_rank("fetch.behind_s"), a.by_rank("fetch.slow_ratio"), a.value("step.time_s")
    rank = max(behind, key=lambda r: behind[r])
    best, worst = _after(a, 1.0), _after(a, 0.5)
    lag = a.get("fetch.worker_lag", rank) or 1.0
    if lag >= t["lag"]:  # no slow batch is left to wait for
        best = model_of(a).at_best(best)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    slow = ratio.get(rank, 1.0) >= t["slow"] or lag >= t["lag"]
    if behind[rank] < t["behind"] * step or not slow or level is None:
        return Clear(RULE.id)
    ranks = tuple(r for r in behind if behind[r] >= t["behind"] * step)
    return Finding(
        rule=RULE.id,
        title="Ready batches wait behind " + ("one slow worker's" if lag >= t["lag"] else "slow ones"),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(ranks) == len(a.by_rank("step.input_wait_s")) else ranks),
        evidence=(
            Evidence(
                "fetch.behind_s",
                behind[rank],
                "s",
                t["behind"] * step,
                f"{100 * behind[rank] / step:.0f} % of the step goes to waiting for one batch while a later one is ready",
            ),
            Evidence("fetch.worker_lag", lag, "×", t["lag"], "what the others need is what that worker's batches take")
            if lag >= t["lag"]
            else Evidence(
                "fetch.slow_ratio",
                ratio.get(rank, 1.0),
                "×",
                t["slow"],
                "the median is what such a batch takes to make",
            ),
        ),
        fixes=(_deal_evenly(a, rank),) if lag >= t["lag"] else _fixes(a, rank),
        saving=model_of(a).saving(best, worst, "a batch that is ready is taken, as fast as the workers make them"),
    )


def _after(a: Analysis, given_back: float) -> float:
    """Step time when so much of the wait behind slow batches is gone, at the rate of the workers there are."""
    model, walls, workers = model_of(a), a.by_rank("fetch.wall_s"), a.by_rank("loader.workers")
    changes = {}
    for rank, behind in a.by_rank("fetch.behind_s").items():
        wait = model.own[rank]["input_wait"]
        rest = model.own_s(rank) - wait + model.wire_s
        rate = walls.get(rank, 0.0) / max(workers.get(rank, 1.0), 1.0)
        changes[rank, "input_wait"] = min(wait, max(wait - given_back * behind, rate - rest))
    return model.step_if(changes, floor_s=min(model.cpu_floor_s(), model.step_s))


def _deal_evenly(a: Analysis, rank: int) -> Fix:
    """Taking whatever is ready gains nothing where each worker has a part of its own to come through."""
    change = "many small shards dealt out in turn, or the slow ones split or brought nearer"
    where = where_of(a.training_loader(rank))
    return Fix("let all workers have shards of the same cost", change, where, "small change")


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    loader = a.training_loader(rank)
    where, count = where_of(loader), loader.num_workers if loader else 0
    ahead = (loader.prefetch_factor if loader else None) or PREFETCH
    more = _as_deep_as_fits(a, count, ahead)
    deeper = Fix(
        f"prefetch_factor={ahead} → {more}",
        f"DataLoader(..., num_workers={count}, prefetch_factor={more}): more lies ready while a slow batch is made",
        where,
        "one line",
    )
    even = Fix("make samples cost the same: resize or split the large ones beforehand", "", where, "larger change")
    rest = (deeper, even) if more > ahead else (even,)
    if _torch_version(a) < _IN_ORDER_SINCE:
        return rest
    change = f"DataLoader(..., num_workers={count}, in_order=False); the order of samples then differs from run to run"
    return (Fix("in_order=False", change, where, "one line"), *rest)


def _as_deep_as_fits(a: Analysis, workers: int, ahead: int) -> int:
    """Twice the batches that a worker has on their way, or as many as memory and /dev/shm have room for."""
    fits = (n for n in range(2 * ahead, ahead, -1) if all(room >= workers for _, room in room_beside_cores(a, n)))
    return next(fits, ahead)


def _torch_version(a: Analysis) -> tuple[int, int]:
    """Unknown: an old one."""
    texts = [str(facts.get("torch", "")) for facts in a.facts.values() if isinstance(facts, dict)]
    found = [match for text in texts if (match := re.match(r"(\d+)\.(\d+)", text))]
    return min(((int(m[1]), int(m[2])) for m in found), default=(0, 0))


RULE = rule(
    __name__,
    "a slow batch holds back ready ones",
    check,
    needs=("step.time_s", "step.input_wait_s", "fetch.behind_s", "fetch.slow_ratio"),
    explains=("DAT001", "DAT004", "DAT008", "COM002"),
    thresholds={
        "behind": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "slow": Threshold(2.0, "chance alone makes batches half as slow again as the median"),
        "lag": Threshold(1.25, "times what other workers' batches take, three standard errors off: not by chance"),
    },
)
