"""Workers cost more than they save.

What it does: finds a training DataLoader with workers whose batches are awaited longer than it takes to make them.

Why it is slow: a worker's batch goes through shared memory, a pipe, and two wake-ups before the training loop has it. For a batch that is
made in a moment (small tensors already in memory) that takes longer than making it on the spot.

Evidence: waiting for input against the time in which a batch is made; of the wait, how much came after the batch was made.

Fix: `num_workers=0` at file and line; or no DataLoader at all: index the tensors by whole batches.

Estimate: the wait for input replaced by making the batch in the training process. At best nobody waits for a core any more, and the time
inside the kernel goes as well, which shared memory took in workers and steps. Reality gave more, for caches stay warm: measured 1.9 to 0.75
and 2.5 to 0.9 ms with one rank, 7.3 to 4.5 and 8.8 to 4.4 ms with two ranks on two cores.

False alarms: workers that are too slow never make the loop wait longer than one batch takes to make; only the hand-over does.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.reading import common, input_evidence, mean, model_of, training_loader, where_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step, model = a.by_rank("step.input_wait_s"), a.value("step.time_s"), model_of(a)
    batches = a.by_rank("step.batches")
    work = {rank: wall * batches.get(rank, 1.0) for rank, wall in a.by_rank("fetch.wall_s").items()}
    ranks = [rank for rank in work if rank in model.own]
    wait, making = common(waits), mean(work)
    best = model.step_if({key: seconds for r in ranks for key, seconds in _alone(a, r, work[r]).items()})
    worst = model.step_if({(r, "input_wait"): work[r] for r in ranks})
    level = severity((step - worst) / step)  # by what is sure: the kernel's part is a guess
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
            "fetch.wall_s", making, "s", wait / t["hand_over"], "to make what a step is fed: less than the wait for it"
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
        seconds_per_step=step - 0.5 * (best + worst),
        evidence=tuple(evidence),
        fixes=(
            Fix(f"num_workers={present} → 0", "DataLoader(..., num_workers=0)", where_of(loader), "one line"),
            Fix("index the tensors by whole batches, without a DataLoader", "", where_of(loader), "small change"),
        ),
        saving=model.saving(best, worst, "the batch made in the training process, in the time a worker takes for it"),
    )


def _alone(a: Analysis, rank: int, work_s: float) -> dict[tuple[int, str], float]:
    """The rank's phases without workers beside it, at best.

    Nobody waits for a core, neither in the making nor in the step; and what the making spends inside the kernel was for the pages of shared
    memory.
    """
    phases, others, job = model_of(a).own[rank], a.get("cpu.other_cores") or 0.0, a.get("cpu.job_cores") or 1.0
    gone = (a.get("fetch.delay_share", rank) or 0.0) + (a.get("fetch.system_share", rank) or 0.0)
    waited = (a.get("step.run_delay_s", rank) or 0.0) * job / (job + others)
    keep = max(0.0, 1.0 - waited / max(sum(phases.values()), 1e-9))
    changes = {(rank, phase): seconds * keep for phase, seconds in phases.items()}
    changes[rank, "input_wait"] = work_s * max(0.0, 1.0 - gone)
    # the step maps and unmaps the pages that the worker took: no more of the kernel's time is theirs
    system = min(a.get("step.system_s", rank) or 0.0, work_s * (a.get("fetch.system_share", rank) or 0.0))
    for phase in ("forward", "backward"):
        part = phases[phase] / max(phases["forward"] + phases["backward"], 1e-9)
        changes[rank, phase] = max(0.0, changes[rank, phase] - system * part)
    return changes


RULE = rule(
    __name__,
    "workers cost more than they save",
    check,
    needs=("step.time_s", "step.input_wait_s", "fetch.wall_s", "loader.workers"),
    explains=("DAT001", "DAT004", "DAT006", "COM002"),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "hand_over": Threshold(1.25, "times the making: nearer to it the gain is less than what two runs differ by"),
    },
)
