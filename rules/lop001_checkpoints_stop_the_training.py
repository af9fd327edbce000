"""Checkpoints stop the training.

What it does: finds loops in which `torch.save`, `torch.distributed.checkpoint.save` or safetensors' `save_file`, with the fsync
that follows it, takes a noticeable share of the time.

Why it is slow: training stands still while tensors are copied, pickled and written; with fsync, until the disk has them.

Evidence: time in checkpoints per step; how often and where they are written.

Fix: write less often; write to a fast local disk and copy from there; `torch.distributed.checkpoint.async_save`; no fsync per file.

Estimate: writing half as often halves it; asynchronous saving leaves little more than the copy, and caches that stay warm.

False alarms: the one checkpoint at the end of a short run.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix, Where
from rules.gaps import on_ranks, ranks_that_spend
from rules.reading import model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical["gap.checkpoint"], a.value("step.time_s")
    level = severity(spent / step)
    if spent < t["share"] * step or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    site = a.save_sites[0] if a.save_sites else None
    where = Where(str(site["file"]), int(site["line"])) if site and site.get("file") else None
    phase = "gap.checkpoint"
    best = model.step_if({(rank, phase): 0.0 for rank in model.own})
    worst = model.step_if({(rank, phase): 0.5 * model.own[rank][phase] for rank in model.own})
    whose = ranks_that_spend(a, "gap.checkpoint")
    return Finding(
        rule=RULE.id,
        title="Training stands still for checkpoints" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a),
        seconds_per_step=spent,
        evidence=(
            Evidence(
                "step.checkpoint_s",
                spent,
                "s",
                t["share"] * step,
                f"{100 * spent / step:.0f} % of the time, spread over the steps",
            ),
            *(
                (
                    Evidence(
                        "checkpoints", float(site["count"]), "", None, f"written at {where.file}:{where.line} so far"
                    ),
                )
                if site and where
                else ()
            ),
        ),
        fixes=(
            Fix("write checkpoints less often, to a fast local disk", "", where, "one line"),
            Fix("save in the background: torch.distributed.checkpoint.async_save", "", where, "small change"),
        ),
        saving=model.saving(model.at_best(best), worst, "checkpoints half as often, or in the background"),
    )


RULE = rule(
    __name__,
    "checkpoints stop the training",
    check,
    needs=("step.time_s", "step.checkpoint_s"),
    explains=("COM002",),
    thresholds={
        "share": Threshold(
            0.03, "lower than elsewhere: it is paid for by every rank at once and easy to take off the loop"
        )
    },
)
