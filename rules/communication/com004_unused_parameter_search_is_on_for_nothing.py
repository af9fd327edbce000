"""The search for unused parameters is on for nothing.

What it does: finds DistributedDataParallel(..., find_unused_parameters=True) around a model whose every parameter is
used in every step.

Why it is slow: at the end of each forward pass DDP walks the whole autograd graph, and in each backward pass the ranks
tell each other by one more all-reduce which parameters were used. DDP also keeps its first guess of gradient buckets
instead of rebuilding them in the order in which gradients really come. Measured on two CPU cores over gloo: a net of
304 small tensors took 14.4 ms a step instead of 11.6, ResNet50 at batch 2 three to six percent more.

Evidence: DDP's own log says of each stamped iteration how large the unused parameters were; none was found on any
rank.

Fix: `find_unused_parameters=False` where the model is wrapped. Should a parameter be unused after all, DDP says so at
the next step.

Estimate: none. Nothing in a running job tells the search from the rest of the forward pass: measure it by a trial with
and without.

False alarms: graphs that change from step to step and seldom leave a part out: only stamped iterations are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Where
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    searched, used = a.by_rank("ddp.searched"), a.by_rank("ddp.with_unused")
    looked = min(searched.values())
    if looked < t["iterations"] or any(used.values()):
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="DDP searches for unused parameters, and there are none",
        severity="low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(),
        evidence=(
            Evidence("ddp.searched", looked, "iterations", t["iterations"], "looked at on each rank"),
            Evidence("ddp.with_unused", 0.0, "iterations", None, "no rank had an unused parameter in any of them"),
        ),
        fixes=(
            Fix(
                "find_unused_parameters=False",
                "DistributedDataParallel(..., find_unused_parameters=False), then compare the steps",
                _where(a),
                "one line",
            ),
        ),
    )


def _where(a: Analysis) -> Where | None:
    for facts in a.facts.values():
        for model in (facts.get("ddp") if isinstance(facts, Mapping) else None) or ():
            if model.get("find_unused_parameters") and model.get("file"):
                return Where(str(model["file"]), int(model["line"]))
    return None


RULE = rule(
    __name__,
    "unused-parameter search is on for nothing",
    check,
    needs=("ddp.searched", "ddp.with_unused"),
    thresholds={
        "iterations": Threshold(
            20, "a branch that is taken in a tenth of the steps hides from twenty looks one time in eight"
        ),
    },
)
