"""Workers cost more than they save.

What it does: finds a training DataLoader with workers whose batches are awaited longer than it takes to make them.

Why it is slow: a worker's batch goes through shared memory, a pipe, and two wake-ups before the training loop has it. For a batch that is
made in a moment (small tensors already in memory) that takes longer than making it on the spot.

Evidence: waiting for input against the time in which a batch is made; of the wait, how much came after the batch was made.

Fix: `num_workers=0` at file and line; or no DataLoader at all: index the tensors by whole batches.

Estimate: the forecast over worker counts at none: the batch made in the training process. At worst as fast as in a worker, without most of
what the kernel did there for shared memory. At best without all of that, with warm caches, and nobody in line for a core. What the kernel
does in the training process to take batches in goes by half or altogether. Measured 1.9 to 0.75 and 2.5 to 0.9 ms with one rank, 7.3 to 4.5
and 8.8 to 4.4 ms with two ranks on two cores; beside it forward and backward went from 1.94 to 1.46 ms.

False alarms: workers that are too slow never make the loop wait longer than one batch takes to make; only the hand-over does.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, forecast_of, mean, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step, model = a.by_rank("step.input_wait_s"), a.value("step.time_s"), model_of(a)
    feeds = a.workers.feeds if a.workers else {}
    wait, making = common(waits), mean({rank: 0.5 * f.batches * sum(f.in_place_s) for rank, f in feeds.items()})
    best, worst = forecast_of(a).step_s(0)
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if (
        min(a.by_rank("loader.workers").values()) < 1
        or wait < t["input_wait"] * step
        or wait < t["hand_over"] * making
        or level is None
    ):
        return Clear(RULE.id)
    loader = training_loader(a, waits)
    after = a.by_rank("fetch.hand_over_s")
    present = int(max(a.by_rank("loader.workers").values()))
    evidence = [
        input_evidence(a, wait, t["input_wait"]),
        Evidence(
            "fetch.wall_s", making, "s", wait / t["hand_over"], "to make what a step is fed in the training process"
        ),
    ]
    if after:
        evidence.append(
            Evidence("fetch.hand_over_s", mean(after), "s", None, "of the wait came after the batch was made")
        )
    return Finding(
        rule=RULE.id,
        title="Handing a batch over takes longer than making it",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=tuple(evidence),
        fixes=(
            Fix(f"num_workers={present} → 0", "DataLoader(..., num_workers=0)", where_of(loader), "one line"),
            Fix("index the tensors by whole batches, without a DataLoader", "", where_of(loader), "small change"),
        ),
        saving=model.saving(
            best, worst, "the batch made in the training process, played through with those of this run"
        ),
    )


RULE = rule(
    __name__,
    "workers cost more than they save",
    check,
    needs=("step.time_s", "step.input_wait_s", "loader.workers", "fetch.wall_s", "loader.foreseen"),
    explains=("DAT001", "DAT004", "DAT006", "COM002"),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "hand_over": Threshold(1.25, "times the making: nearer to it the gain is less than what two runs differ by"),
    },
)
