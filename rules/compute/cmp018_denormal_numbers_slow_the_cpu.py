"""Denormal numbers on the CPU.

What it does: finds training on CPUs that computes with denormal numbers, smaller than 1.2e-38 in single precision and not
zero: moments of weights that get no gradients any more, weights that decay, gradients that vanish.

Fires when: ≥ 1 % of the weights, gradients or optimizer state on the CPU are denormal and not flushed to zero, and what computes with
them takes ≥ 1.1 times as long as before; if there were such numbers from the start, computing takes ≥ 20 % of the step,
and this CPU multiplies them more slowly than others, or the optimizer takes roots of them or is fused.

Why it is slow: many CPUs hand each instruction that meets such a number to microcode, which takes a hundred cycles and
more; one number slows all sixteen that are computed with it. Momentum of 0.9 makes numbers denormal within a thousand
steps without a gradient, and rounding keeps them from ever becoming zero.

Evidence: the bits of some hundred weights, gradients and numbers of optimizer state, read once a second; whether the
training thread flushes such numbers; what computes with them (the optimizer, with denormal weights or gradients also
forward and backward) in a usual step before there were any, and since; products of such numbers and of others, timed by
the advisor in its own process. Forward and backward that meet none show how
fast the machine was then and now.

Fix: `torch.set_flush_denormal(True)` as the first statement after the imports. It changes nothing but such numbers,
which become zero. It holds for the thread that calls it and those that are started from then on. Threads of a parallel
operation start with the first one and live as long as the process: if one has run before, they go on as before.

Estimate: what computes with them takes as long as before the first one; at worst 70 % of that gain. If they were there
from the start, none: the run does not show what they cost. Measured on one core: with one per cent of denormal numbers
SGD with momentum was 1.9 times as slow, fused Adam 2.5 times, Adam 1.2 times, a product of matrices 3.3 times; with a
tenth 7, 13, 4 and 24 times. On an AMD EPYC products of matrices and the operations of plain SGD took as long as ever, fused SGD
and fused Adam up to twice, and Adam that is not fused up to ten times as long, by its roots.

False alarms: something else may have made the steps slower at the same time. On a GPU denormal numbers cost nothing, and
the rule stays silent. Activations are not looked at, nor tensors of other types than float32, sharded ones, or those of
optimizers that are compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving, Severity
from rn50_advisor.advisor.model.job_changes import Invocation, Setup
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import (
    DENORMAL_AFTER_S,
    DENORMAL_BEFORE_S,
    DENORMAL_EXPECTED_S,
    DENORMAL_FLUSHED,
    DENORMAL_GRADIENTS,
    DENORMAL_SINCE,
    DENORMAL_STATE,
    DENORMAL_STEP_S,
    DENORMAL_WEIGHTS,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.model_documents import OptimizerFacts
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import compute_phases_s, facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_KINDS: Mapping[RankMeasure, str] = {
    DENORMAL_STATE: "of the optimizer's state is denormal (0 < |x| < 1.2e-38), as moments become without gradients",
    DENORMAL_WEIGHTS: "of the weights are denormal (0 < |x| < 1.2e-38)",
    DENORMAL_GRADIENTS: "of the gradients are denormal (0 < |x| < 1.2e-38)",
}
_FLUSH = Setup((Invocation("torch.set_flush_denormal", (True,)),))
_FLUSHED_MIN = 0.5  # of the looks
_MANY = 0.1  # share of one kind from which on unknown costs are worth fixing: it made optimizers 4 to 13 times as slow
_WORST_GAIN = 0.7  # of what was lost: something else may have changed, too
_COMPARED = (DENORMAL_BEFORE_S, DENORMAL_EXPECTED_S, DENORMAL_AFTER_S)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    looked_at = a.by_rank(DENORMAL_WEIGHTS)
    if not looked_at:
        return NotMeasured(RULE.id, (DENORMAL_WEIGHTS,))
    ranks = [rank for rank in looked_at if _computes_with_them(a, rank, t)]
    if not ranks:
        return Clear(RULE.id)
    growth = _growth(a)
    worst = max(ranks, key=lambda rank: (growth.get(rank, 0.0), _largest_share(a, rank)))
    lost_s, saving = _since_they_came(a, worst) if worst in growth else (0.0, None)
    level: Severity | None = None
    if worst in growth:
        level = severity(lost_s / a.value(DENORMAL_STEP_S, worst)) if growth[worst] >= t["grew"] else None
    elif _may_be_slow(a, worst) and compute_phases_s(a) >= t["compute"] * a.value(STEP_TIME_S):
        level = "medium" if _largest_share(a, worst) >= _MANY else "low"
    if level is None:
        return Clear(RULE.id)
    since = a.get(DENORMAL_SINCE, worst)
    return Finding(
        rule=RULE.id,
        title="Denormal numbers on the CPU" + (f" since step {since:.0f}" if since is not None else ""),
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost_s,
        scope=Affected(
            ranks=() if len(ranks) == len(model_of(a).own) else tuple(ranks),
            since_step=None if since is None else int(since),
        ),
        evidence=_evidence(a, worst, t),
        fixes=(_fix(a, worst), _KEEP_LARGER),
        saving=saving,
    )


def _computes_with_them(a: Analysis, rank: int, t: Thresholds) -> bool:
    """True if this rank's arithmetic meets denormal numbers."""
    if _flushes(a, rank):
        # its other threads may not: what the step has just computed shows it, weights may be what they were before
        fresh = max(a.get(DENORMAL_STATE, rank) or 0.0, a.get(DENORMAL_GRADIENTS, rank) or 0.0)
        return fresh >= t["share"] and facts_of(a, rank).get("threads", 1) > 1
    return _largest_share(a, rank) >= t["share"]


def _may_be_slow(a: Analysis, rank: int) -> bool:
    """False if this CPU multiplies such numbers as fast as others, and the optimizer neither takes roots of them nor is fused."""
    if a.meta.environment.get("slow_denormals") is not False:
        return True
    optimizer = facts_of(a, rank).get("optimizer", OptimizerFacts())
    plain = optimizer.get("class") == "SGD" and not optimizer.get("fused")
    return not plain and (a.get(DENORMAL_STATE, rank) or 0.0) >= _MANY


def _flushes(a: Analysis, rank: int) -> bool:
    return (a.get(DENORMAL_FLUSHED, rank) or 0.0) >= _FLUSHED_MIN


def _largest_share(a: Analysis, rank: int) -> float:
    return max(a.get(measure, rank) or 0.0 for measure in _KINDS)


def _growth(a: Analysis) -> dict[int, float]:
    """By rank, how many times as long it takes what computes with them; only where there were none at first."""
    found = {}
    for rank in a.by_rank(DENORMAL_STEP_S):
        before_s, expected_s, after_s = (a.get(measure, rank) for measure in _COMPARED)
        if before_s and expected_s and after_s:
            found[rank] = after_s / expected_s
    return found


def _since_they_came(a: Analysis, rank: int) -> tuple[float, Saving]:
    """(seconds lost, the saving), both of today's step: the mean over the run has faster ones, too."""
    step_s = a.value(DENORMAL_STEP_S, rank)
    before_s, expected_s, after_s = (a.value(measure, rank) for measure in _COMPARED)
    most, least = (min(max(0.0, after_s - without(before_s, expected_s)), step_s) for without in (min, max))
    now = replace(model_of(a), step_s=step_s)
    basis = "compute time as before the first denormal numbers"
    saving = now.saving(now.at_best(step_s - most), step_s - _WORST_GAIN * least, basis)
    return max(0.0, after_s - expected_s), saving


def _evidence(a: Analysis, rank: int, t: Thresholds) -> tuple[Evidence, ...]:
    shares = {measure: a.get(measure, rank) or 0.0 for measure in _KINDS}
    found = [
        Evidence.of(measure, share, t["share"], _KINDS[measure], form="continues")
        for measure, share in shares.items()
        if share >= t["share"]
    ]
    if rank in _growth(a):
        before_s, expected_s, after_s = (a.value(measure, rank) for measure in _COMPARED)
        today = f", or {duration(expected_s)} at the machine's current speed" if expected_s != before_s else ""
        note = f"per step in operations on them; {duration(before_s)} before{today}"
        found.insert(1, Evidence.of(DENORMAL_AFTER_S, after_s, t["grew"] * expected_s, note, form="continues"))
    else:
        why = "their cost is unknown: they were present from the first sample on"
        found.insert(1, Evidence("cost", "unknown", "", None, why))
    if _flushes(a, rank):
        note = "the training thread flushes them to zero; threads started before that setting do not"
        found.append(Evidence.of(DENORMAL_FLUSHED, a.get(DENORMAL_FLUSHED, rank), None, note))
    return tuple(found)


_KEEP_LARGER = Fix(
    "or keep the values from shrinking",
    "exclude weights without gradients from the optimizer; too strong weight decay keeps shrinking them",
)


def _fix(a: Analysis, rank: int) -> Fix:
    if _flushes(a, rank):
        title = "flush denormal numbers before the first tensor is created"
        return Fix(title, f"{_FLUSH}, as the first statement after the imports", None, "one line")
    title = "flush denormal numbers to zero, in all threads"
    return Fix.of(title, _FLUSH, None, "one line", more=", as the first statement after the imports")


RULE = rule(
    __name__,
    "Denormal numbers on the CPU",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "share": Threshold(
            0.01, "of one kind: it made optimizers 1.2 to 2.5 times as slow, products of matrices 3.3 times"
        ),
        "grew": Threshold(1.1, "times as long as before: smaller changes come and go on any machine"),
        "compute": Threshold(0.2, "of the step, if there were such numbers from the start"),
    },
)
