"""Several backward passes through one graph.

What it does: finds training steps that call `backward()` several times through the same part of autograd's graph, which
`retain_graph=True` keeps: once for each task or loss of a shared network, or for each time step of a sequence whose states are not
detached.

Fires when: nodes that an earlier pass had gone through take ≥ 5 % of the step, in each of two watched steps and more.

Why it is slow: gradients add up in `.grad`, so the passes give what one pass for the sum of the losses gives. But each of them goes through
all of the shared layers again. With four losses a shared network is gone through four times; in a sequence of T losses, the first time step
T times.

Evidence: in three steps, which nodes of autograd's graph the passes have in common, and on a CPU the time of these nodes in all passes
but the first; the lines that call `backward()`. A step with an optimizer's step or `zero_grad()` between the passes does not count, nor one
in which a parameter or a gradient was changed between them.

Fix: `(loss_a + loss_b).backward()`, without `retain_graph=True`; in a loop, collect the losses and call `sum(losses).backward()` after it.

Estimate: the step without the time of these nodes in all passes but the first, times 0.85 to 1.2: 0.9 to 1.17 times as much came in six
networks, both forms in turns. On GPUs and for graphs that were not timed, by the shapes of the nodes' tensors, in a wide range.

False alarms: methods that need each loss's own gradients (PCGrad, GradNorm, gradients logged for each task). The rule is silent where
they change gradients between the passes, register hooks on parameters, use `create_graph=True`, or read `.grad` or call
`torch.autograd.grad` in the lines between. What only reads gradients in a function that is called there is not seen.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_AGAIN_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.model_documents import RepeatedPasses
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of, step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the time of these nodes, what was spared of the backward passes, both forms in turns, twice, one thread, torch 2.14, five kinds of
# shared networks with two to five losses and an unrolled cell with twelve: convolutions 1.02 and 1.04, attention 0.93 and 0.99, small
# linear layers 1.15 and 1.17, a small trunk under large heads 1.04 and 0.90, an LSTM 1.11 and 1.00, the cell 1.05 and 1.06.
_TIMED = (0.85, 1.2)
# By the shapes of the nodes' tensors: 0.9 to 1.02 in these on a CPU. Nothing was measured on GPUs, so as in `backward_work`.
_NOT_TIMED = (0.4, 1.15)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    again = a.by_rank(STEP_AGAIN_S)
    if not again:
        return NotMeasured(RULE.id, (STEP_AGAIN_S,))
    spent = {
        rank: seconds
        for rank, seconds in again.items()
        if seconds and _repeats(facts_of(a, rank).get("repeated_passes"), t)
    }
    step = a.value(STEP_TIME_S)
    best, worst = (_without(a, spent, hopeful=hopeful) for hopeful in (True, False))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if level is None or lost < t["again"] * step:
        return Clear(RULE.id)
    passes = facts_of(a, max(spent, key=lambda rank: spent[rank]))["repeated_passes"]
    each = passes["passes"] / passes["steps"]
    note = (
        f"in each step; {passes['again'] / passes['steps']:.3g} of them go through nodes that an earlier one has kept"
    )
    timed = all(_is_timed(a, rank) for rank in spent)
    return Finding(
        rule=RULE.id,
        title=f"Several backward passes through one graph: {each:.3g} in each step",
        severity=level,
        confidence=confidence(a, cap=0.8 if timed else 0.6),
        seconds_per_step=lost,
        scope=Affected(ranks=() if len(spent) == len(model_of(a).own) else tuple(spent)),
        evidence=(
            Evidence.of(
                STEP_AGAIN_S, common(spent), t["again"] * step, f"of a {duration(step)} step", form="continues"
            ),
            Evidence("backward passes", each, "", None, note, "explains"),
        ),
        fixes=(_fix(passes),),
        saving=model_of(a).saving(best, worst, "one backward pass for all losses"),
    )


def _repeats(passes: RepeatedPasses | None, t: Thresholds) -> bool:
    return passes is not None and passes["steps"] == passes["repeating"] >= t["steps"]


def _is_timed(a: Analysis, rank: int) -> bool:
    timed = facts_of(a, rank).get("backward_nodes")
    return timed is not None and timed["ns"] > 0


def _without(a: Analysis, spent: dict[int, float], *, hopeful: bool) -> float:
    """The step if all losses went through the graph at once."""
    spared = {}
    for rank, seconds in spent.items():
        share = (_TIMED if _is_timed(a, rank) else _NOT_TIMED)[hopeful]
        spared[rank, "backward"] = min(share * seconds, model_of(a).own[rank]["backward"])
    return step_sparing(a, spared, hopeful=hopeful)


def _fix(passes: RepeatedPasses) -> Fix:
    lines = passes["lines"]
    first = lines[0]
    if first["passes"] > passes["repeating"]:
        change = "collect the losses, and call sum(losses).backward() once after the last, without retain_graph=True"
    else:
        change = "(loss_a + loss_b).backward(), without retain_graph=True, once the last loss is computed"
    others = sorted({each["line"] for each in lines[1:]} - {first["line"]})
    where = f"; instead of the passes in line {', '.join(map(str, others))}, too" if others else ""
    return Fix(
        "add up the losses and call backward once", change + where, Where(first["file"], first["line"]), "small change"
    )


RULE = rule(
    __name__,
    "Several backward passes through one graph",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "steps": Threshold(2, "all of those watched: a single one may be unlike the others"),
        "again": Threshold(0.05, "of the step: severity 'medium' begins there"),
    },
)
