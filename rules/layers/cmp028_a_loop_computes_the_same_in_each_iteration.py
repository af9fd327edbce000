"""Loop-invariant operations in the forward pass.

What it does: finds what a loop in the model computes in each of its iterations although it gives the same each time: the projection of an
encoder's output in the attention of a decoder that goes word by word, a mask for each layer, the weights of a layer with weight or spectral
normalisation that is called for each time step.

Fires when: it takes ≥ 6 % of the step, its share of the backward pass included.

Why it is slow: the forward pass pays for it as often as the loop goes round, and so does the backward pass, which adds up as many equal
gradients.

Evidence: stack samples in the loop, and the source of the functions in it: what the line uses is neither what the loop changes nor random.

Fix: compute it once before the loop and pass it in. For weights, `with torch.nn.utils.parametrize.cached():` around the loop.

Estimate: the forward pass without these lines, and what layers take in the backward pass: 1.8 to 3.2 times as long, and 1 to 5.6 times for
parametrized weights, as one computation saved for each second of the forward pass, both ways in turns in one process. At worst two
iterations become one. Where backward passes were timed node by node, so were the nodes of parametrizations (matrix exponential, Householder
products, solving, weight normalisation), and their number per weight is that of the iterations: all of them but one are saved.

False alarms: below 6 % of the step. Of expressions the number of iterations is not known: of two, half of the time is saved, and
where a loop goes round only once there is nothing to save. What the source does not
decide (a layer of another library, dropout, batch normalisation) counts as different each time. On a GPU the host's samples do not show
kernels, and the rule is silent.
"""

from __future__ import annotations

from collections.abc import Sequence

from rn50_advisor.advisor.model.analysis import PARAMETRIZED, Analysis, HotLine
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_INVARIANT_S,
    STEP_PARAMETRIZED_S,
    STEP_TIME_S,
    STEP_WEIGHT_COMPUTATIONS,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 10
_LINES_MAX = 3
_SAVED = (1.0, 0.5)  # at best nearly all of many iterations, at worst one of two
# Seconds of the backward pass that go with one of the forward pass. Measured on a CPU with torch 2.14, two threads, once and anew in turns:
# keys of an attention, width 96 and 256, 20 and 60 words, 12 and 40 iterations: 1.85 to 3.13. Weight normalisation, width 64 to 256,
# batches of 8 and 64, 48 iterations: 1.0 to 5.55. Tensor expressions of what needs no gradient have no backward pass.
_OF_LAYERS, _OF_WEIGHTS, _OF_EXPRESSIONS = (3.2, 1.8), (5.6, 1.0), (1.0, 0.0)
# Of the nodes of parametrizations in the backward pass, where these were timed: with what goes with them.
_OF_TIMED = (1.05, 0.85)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spent = a.by_rank(STEP_INVARIANT_S)
    if not spent:
        return NotMeasured(RULE.id, (STEP_INVARIANT_S,))
    lines = [line for line in a.invariant_lines if line.samples >= _LINE_SAMPLES_MIN]
    if not lines:
        return Clear(RULE.id)
    step = a.value(STEP_TIME_S)
    best, worst = (_without(a, lines, saved, hopeful=not n) for n, saved in enumerate(_SAVED))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if lost < t["invariant"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Loop-invariant operations: {lines[0].function} computes the same in each iteration",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(STEP_INVARIANT_S, common(spent), None, f"of a {duration(step)} step", form="continues"),
            *(Evidence("stack samples", float(line.samples), "", None, _place(line)) for line in lines[:_LINES_MAX]),
        ),
        fixes=tuple(_fix(line) for line in lines[:_LINES_MAX]),
        saving=model_of(a).saving(best, worst, "once instead of in each iteration"),
    )


def _without(a: Analysis, lines: Sequence[HotLine], saved: float, *, hopeful: bool) -> float:
    samples = sum(line.samples for line in lines)
    backward = sum(_backward(line)[not hopeful] * line.samples for line in lines) / samples
    weights = all(line.leaf == PARAMETRIZED for line in lines)
    timed = a.by_rank(STEP_PARAMETRIZED_S) if weights else {}
    computations = a.by_rank(STEP_WEIGHT_COMPUTATIONS) if weights else {}
    spared: dict[tuple[int, str], float] = {}
    for rank, seconds in a.by_rank(STEP_INVARIANT_S).items():
        # fewer than one for each weight, where a pass leaves some layers out
        of_rank = 1.0 - 1.0 / max(1.0, computations[rank]) if rank in computations else saved
        again = _OF_TIMED[not hopeful] * timed.get(rank, 0.0) or backward * seconds
        spared[rank, "forward"], spared[rank, "backward"] = of_rank * seconds, of_rank * again
    return step_sparing(a, spared, hopeful=hopeful)


def _backward(line: HotLine) -> tuple[float, float]:
    """At best and at worst."""
    return _OF_WEIGHTS if line.leaf == PARAMETRIZED else _OF_LAYERS if line.leaf else _OF_EXPRESSIONS


def _place(line: HotLine) -> str:
    return f"{line.file}:{line.line} in {line.function}" + (f", {line.leaf}" if line.leaf else "")


def _fix(line: HotLine) -> Fix:
    where = Where(line.file, line.line)
    if line.leaf == PARAMETRIZED:
        change = (
            "with torch.nn.utils.parametrize.cached(): around the loop; instead of the older torch.nn.utils.weight_norm and spectral_norm, "
            "those of torch.nn.utils.parametrizations"
        )
        return Fix("compute the parametrized weights once for all iterations", change, where, "small change")
    change = "move the line before the loop and pass its result in; what changes only with the loop's variable stays"
    return Fix("compute it once before the loop", change, where, "small change")


RULE = rule(
    __name__,
    "Loop-invariant operations in the forward pass",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"invariant": Threshold(0.06, "of the step: few samples scatter")},
)
