"""find_unused_parameters enabled without need.

What it does: finds DistributedDataParallel(..., find_unused_parameters=True) around a model that uses every parameter
in every step.

Fires when: `find_unused_parameters=True`, and no parameter was unused in 20 checks; a note without an estimate.

Why it is slow: at the end of each forward pass DDP walks the whole autograd graph, and in each backward pass the ranks
exchange which parameters were used, in an additional all-reduce. DDP also keeps its initial gradient buckets instead of
rebuilding them in the order in which gradients become ready. Measured on two CPU cores over gloo: a net of 304 small
tensors took 14.4 ms a step instead of 11.6, ResNet50 at batch 2 three to six percent more.

Evidence: DDP logs the size of the unused parameters for each iteration that it times; no rank had any.

Fix: `find_unused_parameters=False` where the model is wrapped. If a parameter is unused after all, DDP raises an error
at the next step.

Estimate: none. The search cannot be timed apart from the rest of the forward pass: measure it by a trial with and
without.

False alarms: graphs that change from step to step and rarely skip a part, because only the iterations that DDP times
are checked.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.comm_measures import DDP_SEARCHED, DDP_WITH_UNUSED
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    searched, used = a.by_rank(DDP_SEARCHED), a.by_rank(DDP_WITH_UNUSED)
    checked = min(searched.values())
    if checked < t["iterations"] or any(used.values()):
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="find_unused_parameters=True without unused parameters",
        severity="low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(),
        evidence=(
            Evidence.of(DDP_SEARCHED, checked, t["iterations"], "checked on each rank", form="explains"),
            Evidence.of(DDP_WITH_UNUSED, 0.0, note="no rank had an unused parameter in any of them", form="explains"),
        ),
        fixes=(
            Fix.of(
                "find_unused_parameters=False",
                CallChange.of("DistributedDataParallel", find_unused_parameters=False),
                _where(a),
                "one line",
                more=", then compare the steps",
            ),
        ),
    )


def _where(a: Analysis) -> Where | None:
    for facts in a.rank_facts.values():
        for model in facts.get("ddp", ()):
            if model.get("find_unused_parameters") and model.get("file"):
                return Where(model["file"], model["line"])
    return None


RULE = rule(
    __name__,
    "find_unused_parameters enabled without need",
    check,
    severities=("low",),
    needs=(DDP_SEARCHED, DDP_WITH_UNUSED),
    thresholds={
        "iterations": Threshold(20, "twenty checks miss a branch taken in a tenth of the steps one time in eight"),
    },
)
