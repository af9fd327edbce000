"""Data loading: batches of all ranks loaded by rank 0.

What it does: finds a loader of accelerate or transformers that dispatches its batches: rank 0 loads those of all ranks one after the
other and broadcasts them. It is the default for an `IterableDataset`.

Fires when: the training loader dispatches batches to several ranks, and at least half of the ranks wait for input for ≥ 5 % of the step.

Why it is slow: the samples of N ranks are made by one process, or by its workers alone, while the cores of the others stand idle.
Then the whole batch goes through a broadcast, of which each rank keeps one part in N. More ranks make the wait longer.

Evidence: the input wait as a share of the step, which on the other ranks is the wait for rank 0; how many batches rank 0 loads in
each step, and for how long.

Fix: give each rank its own part of the data: its shards or every N-th sample in `__iter__`, in a loader that stays out of
`accelerator.prepare`; or, if accelerate can divide the data set itself (one with indices, a stream of Hugging Face datasets with at least
as many shards as ranks), `dispatch_batches=False`. With that alone each rank would make all samples of any other stream (DAT023).

Estimate: each rank loads its part at the same time as the others, in one N-th of the time that rank 0 takes, with as many workers as
rank 0 has, and without the broadcast. At worst samples take longer to make on busy cores, and half of the broadcast's time is needed to
wait for each other anyway.

False alarms: ranks that compute parts of one batch (tensor parallelism) need the same samples; their loaders are not reported. A
source that can be read only once, such as a queue, has to be read by one process: then more workers of rank 0 help.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.worker_model import CROWDING
from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import (
    batches_made,
    beside_batches,
    common,
    lost_to_input,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_BROADCAST_LEFT_WORST = 0.5  # of its time: ranks that do not meet in a broadcast meet in the gradient exchange
_HUGGING_FACE = "datasets."


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = a.by_rank(STEP_INPUT_WAIT_S), a.value(STEP_TIME_S)
    wait, loader = common(waits), training_loader(a, waits)
    if loader is None or not loader.dispatches or len(waits) < 2:
        return Clear(RULE.id)
    level = severity(wait / step)
    if wait < t["input_wait"] * step or level is None:
        return Clear(RULE.id)
    ranks, model = a.world_size, model_of(a)
    loading = _loading_s(a)
    best, worst = _step_after(a, loader, loading)
    return Finding(
        rule=RULE.id,
        title=f"Data loading: rank 0 loads the batches of all {ranks} ranks",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=min(lost_to_input(a), step - best),
        evidence=(input_evidence(a, wait, t["input_wait"]), *_loaded(a, loading)),
        fixes=_fixes(a, loader),
        saving=model.saving(best, worst, f"each rank loads 1 batch in {ranks} itself, and none is broadcast"),
    )


def _loading_s(a: Analysis) -> float | None:
    """Seconds in which rank 0, or one of its workers, makes the batches of a step; None if not measured."""
    each = a.by_rank(FETCH_WALL_S).get(0)
    return None if each is None else each * batches_made(a).get(0, 1.0)


def _loaded(a: Analysis, loading_s: float | None) -> tuple[Evidence, ...]:
    if loading_s is None:
        return ()
    others = [wait for rank, wait in a.by_rank(STEP_INPUT_WAIT_S).items() if rank]
    note = (
        f"to make one batch on rank 0, which makes {batches_made(a).get(0, 1.0):.3g} in each step; meanwhile the others wait, "
        f"{duration(sum(others) / max(1, len(others)))} per step"
    )
    return (Evidence.of(FETCH_WALL_S, a.by_rank(FETCH_WALL_S)[0], note=note, form="explains"),)


def _step_after(a: Analysis, loader: LoaderFacts, loading_s: float | None) -> tuple[float, float]:
    """(best, worst) step time if each rank loads its own batches."""
    model, waits = model_of(a), a.by_rank(STEP_INPUT_WAIT_S)
    first_s = waits.get(0, max(waits.values()))
    slower = (a.workers.crowding if a.workers is not None else CROWDING)[1]
    making_s = first_s if loading_s is None else loading_s
    broadcast_s = 0.0 if loader.num_workers else max(0.0, first_s - making_s)

    def left_s(rank: int, share_s: float) -> float:
        own = model.own[rank]
        if loader.num_workers:  # they work while the rank trains
            share_s = max(0.0, share_s / loader.num_workers - (sum(own.values()) - own["input_wait"]))
        return min(own["input_wait"], share_s + beside_batches(a, rank))

    share_s = making_s / a.world_size
    ends = (share_s, share_s * (1.0 + slower) + _BROADCAST_LEFT_WORST * broadcast_s)
    best, worst = (model.step_if({(rank, "input_wait"): left_s(rank, end) for rank in model.own}) for end in ends)
    floor_s = min(model.step_s, model.cpu_floor_s())
    return max(best, floor_s), max(worst, floor_s)


def _fixes(a: Analysis, loader: LoaderFacts) -> tuple[Fix, ...]:
    own = Fix(
        f"give each rank its own part of the data: one in {a.world_size}",
        "shards[rank::world_size], or datasets.distributed.split_dataset_by_node(data, rank, world_size); and keep this loader out of "
        "accelerator.prepare",
        where_of(loader),
        "small change",
    )
    divided = Fix(
        "let accelerate divide the data set: only one with indices, or a Hugging Face stream with a shard or more for each rank",
        "Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False)); with Trainer: "
        'accelerator_config={"dispatch_batches": False}',
        where_of(loader),
        "one line",
    )
    divisible = loader.dataset.get("class", "").startswith(_HUGGING_FACE) or loader.dataset.get("length") is not None
    return (divided, own) if divisible else (own, divided)


RULE = rule(
    __name__,
    "Data loading: batches of all ranks loaded by rank 0",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S),
    thresholds={"input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
