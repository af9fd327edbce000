"""Gradients that no optimizer uses.

What it does: finds parameters that get a gradient in each step although no optimizer updates them: only the last layer is
handed to the optimizer and the others are not frozen, or a teacher beside the model is called with gradients enabled.

Fires when: such parameters cost ≥ 5 % of the step, and looks at three steps and more saw them unchanged while their
gradients changed.

Why it is slow: autograd computes the gradient of each parameter that requires one. Where all layers before the first one
that learns are frozen, the backward pass ends there; otherwise it goes through the whole model. DDP also exchanges
these gradients, and activations are kept for them.

Evidence: which parameters have gradients before the optimizers' steps, and which are in an optimizer; some numbers of the
largest ones, which stay the same, and of their gradients, which do not; the time of the backward pass; autograd's graph of a
step's backward passes, which shows what of their work only these gradients need.

Fix: `requires_grad_(False)` on what the optimizer does not get; `torch.no_grad()` around the call of a network of which nothing
learns. If it was meant to learn, it belongs into the optimizer; then the model has not learned what it should.

Estimate: the share of the backward passes' work that is spared, times 0.7 to 1.15 as measured on CPUs. Without a graph (more than
5,000 nodes, or activation checkpointing): where they all come before the first one that learns, the backward pass keeps only the share of
those that learn, by weights at best and by elements at worst; else it loses 30 to 65 % of their share. On CPUs three backward
passes are timed node by node, which says more. Layers that keep nothing for gradients also run up to 24 % faster forward.

False alarms: gradients that the job reads itself, to show or to log them. Parameters that the job updates by hand change
between two looks, and the rule stays silent; on a GPU their version counters must show it. It stays silent too if none
of the model's own parameters is in an optimizer, which then holds shards or copies of them.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.model_documents import OptimizerFacts, UnusedGradients
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.layers.backward_work import spared_share
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Measured on two cores with torch 2.14, frozen and not by turns in one process: ResNet18, MobileNetV3, a transformer, two perceptrons.
# Where what learns comes last, the backward pass kept 0.14 to 0.9 times its share of the weights (two dimensions and more); with the
# wide last block of ResNet18 1.9 times, which is 0.76 times its share of the elements.
_KEPT_AT_BEST = 0.25  # of the share of the weights where it is small, and all of it where it is large
_KEPT_AT_WORST = (1.2, 0.8)  # of the share of the weights, or of the elements
# Of the time of a backward pass's nodes that lead to nothing that learns: a margin around all of it, not measured apart.
_OF_UNNEEDED = (0.85, 1.05)
# At best: of a forward pass that keeps nothing for gradients. Six networks in `eval()` mode by turns: 0.76 to 1.0 of the time was left.
_OF_FORWARD = 0.24
# Otherwise gradients still pass through all layers: 0.36 to 0.6 times the share of the frozen weights was spared, worst and best.
_SPARED_BETWEEN = (0.3, 0.65)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not any("model" in facts for facts in a.rank_facts.values()):
        return NotMeasured(RULE.id, ("model",))
    unused = {rank: found for rank in model_of(a).own if (found := _unused(a, rank, t)) is not None}
    step = a.value(STEP_TIME_S)
    best, worst = (_step_without(a, unused, at_best=at_best) for at_best in (True, False))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if level is None or lost < t["cost"] * step:
        return Clear(RULE.id)
    rank = max(unused, key=lambda rank: unused[rank]["elements"])
    found = unused[rank]
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title=f"Unused gradients: no optimizer updates {_count(found['elements'])} parameters that get them",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(unused) == len(model.own) else tuple(unused)),
        evidence=(
            Evidence(
                "parameters in no optimizer",
                round(found["elements"] / found["all_elements"], 3),
                "share",
                None,
                f"of the {_count(found['all_elements'])} that get gradients, in {', '.join(found['modules'])}; "
                f"unchanged in all of {found['looks']} samples",
                "explains",
            ),
            Evidence(
                "backward pass",
                model.own[rank]["backward"],
                "s",
                None,
                f"of a {duration(step)} step",
                "continues",
            ),
        ),
        fixes=_fixes(a, rank, found),
        saving=model.saving(model.at_best(best), worst, "parameters without an optimizer are frozen"),
    )


def _unused(a: Analysis, rank: int, t: Thresholds) -> UnusedGradients | None:
    found = facts_of(a, rank).get("unused_gradients")
    return found if found and found["looks"] >= t["looks"] and found["tensors"] else None


def _step_without(a: Analysis, unused: dict[int, UnusedGradients], *, at_best: bool) -> float:
    """The step with these parameters frozen."""
    model = model_of(a)
    changes = {}
    for rank, found in unused.items():
        kept = _kept(a, rank, found, at_best=at_best)
        changes[rank, "backward"] = kept * model.own[rank]["backward"]
        if at_best and found.get("order") == "upstream":  # their layers need no gradients at all
            changes[rank, "forward"] = (1.0 - _OF_FORWARD * (1.0 - kept)) * model.own[rank]["forward"]
    return model.step_if(changes)


def _kept(a: Analysis, rank: int, found: UnusedGradients, *, at_best: bool) -> float:
    """The share of the backward pass that stays if these parameters are frozen."""
    timed = facts_of(a, rank).get("backward_nodes")
    if "products" in found and timed and timed["ns"] and timed.get("unneeded_ns", 0) + timed.get("partly_ns", 0):
        spared = _OF_UNNEEDED[at_best] * timed["unneeded_ns"] + _SPARED_BETWEEN[at_best] * timed["partly_ns"]
        return max(0.0, 1.0 - spared / timed["ns"])
    if "products" in found:
        return 1.0 - spared_share(a, found["products"], found["points"])[at_best]
    learning = 1.0 - found["tensors"] / found["all_tensors"]
    if not found["first"]:
        return 1.0 - (1.0 - learning) * _SPARED_BETWEEN[at_best]
    if at_best:
        return learning * (_KEPT_AT_BEST + (1.0 - _KEPT_AT_BEST) * learning)
    of_weights, of_elements = _KEPT_AT_WORST
    return min(1.0, max(of_weights * learning, of_elements * (1.0 - found["elements"] / found["all_elements"])))


def _fixes(a: Analysis, rank: int, found: UnusedGradients) -> tuple[Fix, ...]:
    optimizer = facts_of(a, rank).get("optimizer", OptimizerFacts())
    made = Where(optimizer["file"], optimizer["line"]) if optimizer.get("file") and "line" in optimizer else None
    parts = ", ".join(found["modules"])
    learns = Fix(
        "or add it to the optimizer, if it should train",
        "pass all of model.parameters() to the optimizer",
        made,
        "one line",
    )
    if not found.get("file"):
        freeze = f"requires_grad_(False) on {parts}, before the optimizer is created and DDP wraps the model"
        return Fix("freeze parameters that are not in the optimizer", freeze, made, "one line"), learns
    called = Where(found["file"], found["line"])
    if found.get("order") == "upstream":  # nothing that learns lies behind it
        without = f"call {parts} under torch.no_grad(), and freeze it: requires_grad_(False)"
        return Fix("compute the frozen part without gradients", without, called, "one line"), learns
    freeze = f"requires_grad_(False) on {parts}: gradients still flow through it to trained layers"
    return Fix("freeze the network that is not in the optimizer", freeze, called, "one line"), learns


def _count(elements: int) -> str:
    return f"{elements / 1e6:.3g} million" if elements >= 1e6 else f"{elements:,}"


RULE = rule(
    __name__,
    "Gradients that no optimizer uses",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "looks": Threshold(3, "in succession: a single one may meet an update that comes every few steps"),
        "cost": Threshold(0.05, "of the step"),
    },
)
