"""Evaluation takes a large share of the run.

What it does: finds runs that evaluate again and again and spend a tenth of their time or more on it.

Why it is slow: no training happens meanwhile; often evaluation runs with a small batch, few workers, or far too often.

Evidence: time in evaluation, spread over the steps; its share of the run so far.

Fix: evaluate less often, on a subset in between, with a larger batch (no gradients are kept) and enough workers.

Estimate: half as often halves it; at best a tenth of it is left, and caches that stay warm.

False alarms: a short trial run that evaluates once at its end.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import on_ranks, ranks_that_spend
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    spent, step = a.budget.critical["gap.evaluation"], a.value("step.time_s")
    times = sum(1 for segment in a.segments if segment.kind == "evaluation")
    level = severity(spent / step)
    if spent < t["share"] * step or times < t["evaluations"] or level is None:
        return Clear(RULE.id)
    model, phase = model_of(a), "gap.evaluation"
    best = model.step_if({(rank, phase): 0.1 * model.own[rank][phase] for rank in model.own})
    worst = model.step_if({(rank, phase): 0.5 * model.own[rank][phase] for rank in model.own})
    loader = next((loader for loader in a.loaders if loader.training is False), None)
    evidence = [
        Evidence(
            "step.evaluation_s",
            spent,
            "s",
            t["share"] * step,
            f"{100 * spent / step:.0f} % of the time, spread over the steps",
        ),
        Evidence("evaluations", float(times), "", t["evaluations"], f"{times} evaluations so far"),
    ]
    if loader is not None:
        note = f"the evaluation loader, {loader.file}:{loader.line}"
        evidence.append(Evidence("loader.workers", float(loader.num_workers), "workers", None, note))
    whose = ranks_that_spend(a, "gap.evaluation")
    divided = Fix(
        "divide it among the ranks",
        "DistributedSampler(..., shuffle=False), counts added up by all_reduce",
        None,
        "small change",
    )
    return Finding(
        rule=RULE.id,
        title="Evaluation takes a large share of the run" + on_ranks(whose),
        severity=level,
        scope=Affected(ranks=whose),
        confidence=confidence(a),
        seconds_per_step=spent,
        evidence=tuple(evidence),
        fixes=(
            *((divided,) if whose else ()),
            Fix("evaluate less often, or on a subset in between", "", None, "one line"),
            Fix("a larger batch and more workers for evaluation", "", None, "one line"),
        ),
        saving=model.saving(model.at_best(best), worst, "half as often, down to a tenth"),
    )


RULE = rule(
    __name__,
    "evaluation takes a large share",
    check,
    needs=("step.time_s", "step.evaluation_s"),
    explains=("COM002",),
    thresholds={
        "share": Threshold(
            0.10, "twice the share where severity 'medium' begins: evaluation is wanted, only too much of it is not"
        ),
        "evaluations": Threshold(2, "one evaluation tells nothing about how often"),
    },
)
