"""Loading happens in the training process.

What it does: finds a training DataLoader with `num_workers=0` whose batches take a noticeable share of the step.

Why it is slow: reading, decoding and transforming a batch and training on it take turns in one thread. The accelerator waits for every
batch from its first byte to its last.

Evidence: waiting for input as a share of the step; `num_workers=0` at file and line; time to make one batch in the training process.

Fix: `num_workers=N`, with `persistent_workers=True`, and `pin_memory=True` when training on a GPU. N is the knee of the forecast over
worker counts: the fewest workers that come near the best the cores of this rank can carry. Where workers gain less than 2 % even at
best, cheaper samples instead.

Estimate: the same forecast at N. A loader with N workers is played through batch by batch, with the batch times of this run, handing over,
and the cores shared with training (on a machine without idle cores workers cannot help: then up to all of the wait for samples,
were they to cost nothing).
At best the step computes faster besides: no batch goes through the caches of its core any more.

False alarms: tiny in-memory data, where workers cost more than they save (DAT007): nothing is said where a batch is made in less time than
a worker takes to hand one over, nor below 5 % of the step. Nor where garbage collections may be what takes it there (CPU006).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import (
    common,
    forecast_of,
    limit_words,
    lost_to_input,
    mean,
    model_of,
    room_beside_cores,
    room_fix,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.data_loading.worker_supply import HARDLY
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, walls = a.by_rank("step.input_wait_s"), a.by_rank("fetch.wall_s")
    step, wait = a.value("step.time_s"), common(waits)
    level, collecting = severity(wait / step), a.by_rank("step.gc_s")
    loading = common({rank: seconds - collecting.get(rank, 0.0) for rank, seconds in waits.items()})
    if max(a.by_rank("loader.workers").values()) > 0 or loading < t["input_wait"] * step or level is None:
        return Clear(RULE.id)
    if max(walls.values()) < t["hand_over"]:
        return Clear(RULE.id)
    workers, wanted = workers_for(a)
    loader, model = training_loader(a, waits), model_of(a)
    best, worst = forecast_of(a).step_s(workers)
    title = f"num_workers=0 → {workers}, persistent_workers=True"
    change = f"DataLoader(..., num_workers={workers}, persistent_workers=True)"
    if loader is not None and a.on_gpu:
        change = change[:-1] + ", pin_memory=True)"
    if wanted > workers:
        limits = limit_words(a)
        change += f"; {wanted} workers would be needed, this machine has room for {workers}"
        change += f" ({limits})" if limits else ""
    fix = Fix(title, change, where_of(loader), "one line")
    if any(count < 1 for _, count in room_beside_cores(a)):
        fix = room_fix(a, workers, where_of(loader))
    saving = model.saving(best, worst, f"{counted(workers, 'worker')} beside the step, on the cores there are")
    if saving.speedup[1] < HARDLY:
        fix = Fix(
            "make samples cheaper: workers would take the cores that computing needs",
            "transforms on whole batches, data decoded or cached once",
            where_of(loader),
            "small change",
        )
        saving = model.saving(model.step_s - lost_to_input(a), model.step_s, "at best samples that cost nothing")
    return Finding(
        rule=RULE.id,
        title="Batches are loaded in the training process",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence(
                "loader.workers", 0.0, "workers", 1.0, f"at {loader.file}:{loader.line}" if loader else "num_workers=0"
            ),
            Evidence("fetch.wall_s", mean(walls), "s", None, "to make one batch in the training process"),
        ),
        fixes=(fix,),
        saving=saving,
    )


RULE = rule(
    __name__,
    "loading happens in the training process",
    check,
    needs=("step.time_s", "step.input_wait_s", "loader.workers", "fetch.wall_s", "loader.foreseen"),
    explains=("COM002",),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "hand_over": Threshold(
            0.002, "s to make a batch: handing one over took 1.6 to 2.2 ms on two cores, whatever was in it"
        ),
    },
)
