"""Discarded gradients.

What it does: finds backward passes that give gradients to parameters whose optimizer never sees them, because `zero_grad()` comes first.

Fires when: such gradients cost ≥ 5 % of the step, and twelve recorded steps and more saw them come and go.

Why it is slow: a backward pass computes the gradient of everything that requires one. A discriminator's loss on generated
pictures goes on through the generator unless they are detached; the generator's loss also computes the gradients of the
discriminator's weights; an attack on the inputs those of the model's weights.

Evidence: in a few steps, the gradients of a few parameters of each optimizer before and after each backward pass and before
the optimizer's step; autograd's graph of such a pass, which shows what of its work only these gradients need.

Fix: `detach()` what enters from the network that does not learn in this pass, or compute it under `torch.no_grad()`;
`requires_grad_(False)` on a network through which the gradients only pass; `torch.autograd.grad(loss, inputs)` where only
those of the inputs are used; no backward pass at all where none is.

Estimate: the time of these passes, times the share of their work that is spared. On a CPU that was 0.7 to 1.15 times the share in
autograd's graph, by shapes; nothing was measured on GPUs. Without a graph (too large, or activation checkpointing) the range is wide.

False alarms: gradients that the job copies before it removes them (gradient surgery, norms that are logged). A gradient
that is still held somewhere does not count as discarded, nor one after which the parameter changed, or that the job replaced.
On a GPU a change through `parameter.data` is not seen (some forms of sharpness-aware training): there the confidence is low.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.probes.documents.model_documents import DiscardedGradients
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.layers.backward_work import spared_share
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_OF_UNKNOWN_WORK = (0.05, 0.5)  # of the pass, if autograd's graph says nothing: 0.0 to 0.95 were seen
_WHOLE_PASS = (0.85, 1.0)
_OFTEN = 0.9  # of the passes at a place
_ADVISED_MAX = 3  # places


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    model = model_of(a)
    if not any("watched_gradients" in facts_of(a, rank) for rank in model.own):
        return NotMeasured(RULE.id, ("watched_gradients",))
    sites = {rank: _sites(a, rank, t) for rank in model.own}
    step = a.value(STEP_TIME_S)
    best, worst = (_step_without(a, sites, hopeful=hopeful) for hopeful in (True, False))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if level is None or lost < t["cost"] * step:
        return Clear(RULE.id)
    rank = max(sites, key=lambda rank: sum(_likely(a, each) for each in sites[rank]))
    found = sorted(sites[rank], key=lambda each: -_likely(a, each))
    affected = tuple(rank for rank, each in sites.items() if each)
    known = all("products" in each and not (a.on_gpu and _is_whole(each)) for each in found)
    return Finding(
        rule=RULE.id,
        title="Discarded gradients: computed, but cleared before any optimizer step",
        severity=level,
        confidence=confidence(a, cap=0.85 if known else 0.6),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(affected) == len(model.own) else affected),
        evidence=tuple(_evidence(a, each, found) for each in found[:_ADVISED_MAX]),
        fixes=tuple(_fix(each, found) for each in found[:_ADVISED_MAX]),
        saving=model.saving(model.at_best(best), worst, "backward passes compute only the gradients in use"),
    )


def _sites(a: Analysis, rank: int, t: Thresholds) -> list[DiscardedGradients]:
    found = facts_of(a, rank).get("discarded_gradients", [])
    return [each for each in found if each["steps"] >= t["steps"] and each["dropped"] >= _OFTEN * each["passes"]]


def _step_without(a: Analysis, sites: dict[int, list[DiscardedGradients]], *, hopeful: bool) -> float:
    """The step if these passes computed only what is used."""
    model = model_of(a)
    changes = {
        (rank, "backward"): model.own[rank]["backward"] * (1.0 - sum(_spared(a, each)[hopeful] for each in found))
        for rank, found in sites.items()
    }
    return model.step_if(changes)


def _likely(a: Analysis, site: DiscardedGradients) -> float:
    return sum(_spared(a, site)) / 2


def _spared(a: Analysis, site: DiscardedGradients) -> tuple[float, float]:
    """The share of all backward passes that is spared here, at worst and at best."""
    passes = site["ns"] / max(1, site["all_ns"]) * site["dropped"] / site["passes"]
    low, high = _of_the_pass(a, site)
    return passes * low, passes * high


def _of_the_pass(a: Analysis, site: DiscardedGradients) -> tuple[float, float]:
    if _is_whole(site):
        return _WHOLE_PASS
    if not site.get("order") or site["order"] == "whole":
        return _OF_UNKNOWN_WORK
    return spared_share(a, site["products"], site["points"])


def _is_whole(site: DiscardedGradients) -> bool:
    """True if nothing at all of these passes is used. Where the graph is not known, tensors of no optimizer may get gradients."""
    return site.get("order") == "whole" and not site.get("others", True) and site["whole"] >= _OFTEN * site["dropped"]


def _evidence(a: Analysis, site: DiscardedGradients, all_sites: list[DiscardedGradients]) -> Evidence:
    low, high = _of_the_pass(a, site)
    where = _where(site, all_sites)
    return Evidence(
        "backward passes with discarded gradients",
        float(site["dropped"]),
        "",
        None,
        f"of {site['passes']} at {where.file}:{where.line}; these gradients, of {_share(site)} of all trained parameters, take "
        f"{100 * low:.0f} to {100 * high:.0f} % of such a pass, and these passes {100 * site['ns'] / max(1, site['all_ns']):.0f} % "
        f"of the backward passes' time",
        "explains",
    )


def _share(site: DiscardedGradients) -> str:
    return f"{100 * site['elements'] / max(1, site['all_elements']):.0f} %"


def _owner(site: DiscardedGradients) -> str:
    made = site.get("made", {})
    name = site.get("class", "optimizer")
    return f"those of the {name} made at {made['file']}:{made['line']}" if made.get("file") and "line" in made else name


def _where(site: DiscardedGradients, all_sites: list[DiscardedGradients]) -> Where:
    """The line of this pass; if others share it, the innermost one on the way to it that they do not."""
    others = [_lines(each) for each in all_sites if each is not site]
    lines = _lines(site)
    file, line = next((place for place in lines if not any(place in each for each in others)), lines[0])
    return Where(file, line)


def _lines(site: DiscardedGradients) -> list[tuple[str, int]]:
    return [(place["file"], place["line"]) for place in (site, *site.get("callers", []))]


def _fix(site: DiscardedGradients, all_sites: list[DiscardedGradients]) -> Fix:
    where, owner = _where(site, all_sites), _owner(site)
    detach = (
        f"detach() the outputs of the network with these parameters ({owner}), or compute them under torch.no_grad()"
    )
    freeze = f"requires_grad_(False) on the network with these parameters ({owner}) before this loss is computed, and True afterwards"
    order = site.get("order", "")
    if _is_whole(site):
        change = "remove this backward pass, or call zero_grad() before it if its gradients were meant to count"
        return Fix("none of its gradients is used, unless the job copies them", change, where, "small change")
    if order == "upstream":
        return Fix(
            "detach() the inputs of this loss that come from a network it does not train", detach, where, "one line"
        )
    if order == "downstream" and site["whole"] >= _OFTEN * site["dropped"]:
        change = "torch.autograd.grad(loss, inputs) in place of loss.backward()"
        return Fix("compute the gradients of the inputs alone", change, where, "one line")
    if order == "downstream":
        return Fix(
            "freeze the network that the gradients of this pass only flow through", freeze, where, "small change"
        )
    change = f"where it is the source of what this loss is computed from: {detach}; where this loss goes through it: {freeze}"
    return Fix("exclude the untrained part from this backward pass", change, where, "small change")


RULE = rule(
    __name__,
    "Discarded gradients",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "steps": Threshold(12, "of two windows: a single one may lie in a phase of its own"),
        "cost": Threshold(0.05, "of the step"),
    },
)
