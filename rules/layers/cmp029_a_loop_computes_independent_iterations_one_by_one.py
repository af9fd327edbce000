"""Independent iterations one by one.

What it does: finds Python loops in the forward pass or the loss whose iterations do not depend on each other and compute little each: a
loss for each column, sample or class, a head for each label, a penalty for each parameter, a decoder that is called for each word of a
known text, on all words so far.

Fires when: they take ≥ 6 % of the step, their share of the backward pass included, with at least eight iterations and at most 50 µs for
each operation outside the backward pass; however long operations are where each iteration goes through all of the ones before.

Why it is slow: calling an operation costs some microseconds in Python, the dispatcher and autograd, however small its tensors are, on
one core; and each node of autograd's graph as many in the backward pass. One operation on all columns costs that once and computes on
all cores. A decoder on the first word, the first two, and so on computes each word again for every later one: of 64 words 2,080 instead.

Evidence: stack samples in the loop; its source, by which no iteration uses what another one has computed; a block of nodes of the loop's
operations that repeats in autograd's graph, and its time in three timed backward passes.

Fix: one operation on whole tensors: `loss(logits, targets)` for all columns, `reduction="none"` and a mean over the right dimension for
weights, a mask in place of lengths; one wider layer instead of many heads; the optimizer's `weight_decay` for a penalty of squares,
`torch._foreach_norm` for others. A decoder that trains on known words takes all of them at once, with a causal mask, and the loss of all
positions.

Estimate: what was left of such loops with one operation, both forms of 19 loops in turns: 5 to 34 % of the forward pass, 2 to 43 % of the
backward pass. Of N iterations that each go through all of the ones before, 2 / (N + 1) of the computing.

False alarms: below 6 % of the step. A decoder without a causal mask, called on the words so far, lets each of them see the later ones of
its call: with a mask it is another model, which has to be trained and used with it. A loop may save memory: all columns at once need what
now each of them needs. What a function outside the job's own code keeps between two calls is not known. On a GPU the rule is silent: there
CMP003 measures how long the GPU waits for the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.model.analysis import Analysis, IndependentLoop, IteratesOver
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_ITERATIONS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 10
_LOOPS_MAX = 3
# Share of a loop's time that is left with one operation for all iterations, at best and at worst, the latter beside one iteration's.
# Measured on a CPU with torch 2.14, two threads, both forms in turns in one process: losses for each column, sample, class, pair and
# triplet, poolings of lengths, heads and embeddings, 16 to 256 iterations of 3 to 57 us for an operation. Forward pass 0.05 to 0.34, median
# 0.16; backward pass 0.02 to 0.23 but for embeddings (0.43), median 0.08. Of eight heads of an attention 0.38 and 0.35. Of 64 to 95 us 0.46
# to 0.73 of the forward pass was left.
_FORWARD_LEFT, _BACKWARD_LEFT = (0.05, 0.25), (0.02, 0.2)
# Of a loop's time in the forward pass: the backward pass took 0.8 to 9 times as long, so less are the nodes of something else.
_BACKWARD_MIN = 0.3
# Of iterations that each go through all before them, of the share that is left of computing. With 24 words, a batch of 16 and two layers of
# attention of width 64, 0.08 of the step was left, where this share is 0.08.
_GROWING_LEFT = (0.6, 1.5)
# Of a penalty of squares, which no loss needs where the optimizer decays the weights.
_SQUARES_LEFT = (0.0, 0.1)
_FIXES: Mapping[IteratesOver, tuple[str, str]] = {
    "data": (
        "one operation for all iterations of the loop",
        'on whole tensors: criterion(logits, targets) for all columns, reduction="none" and a mean over the right dimension where each has '
        "a weight of its own, a mask where lengths differ",
    ),
    "modules": (
        "one wider layer instead of one for each iteration",
        "nn.Linear(width, number of outputs), torch.einsum or torch.baddbmm with stacked weights, one nn.Embedding with offsets, groups= "
        "of a convolution",
    ),
    "parameters": (
        "one operation for all parameters",
        "torch._foreach_norm(list(parameters))",
    ),
    "squares": (
        "weight_decay of the optimizer instead of a penalty of squares",
        "weight_decay=2 * factor in SGD or Adam has the gradient of factor * sum of p ** 2; AdamW decays beside the gradient",
    ),
}


_GROWING = (
    "one call for all positions, with a causal mask",
    "decoder(words, mask=nn.Transformer.generate_square_subsequent_mask(length), is_causal=True) before the loop, and the loss of all "
    "positions at once: the words are known in training",
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spent = a.by_rank(STEP_ITERATIONS_S)
    if not spent:
        return NotMeasured(RULE.id, (STEP_ITERATIONS_S,))
    everywhere = sum(loop.samples for loop in a.independent_loops)
    loops = [
        loop
        for loop in a.independent_loops
        if loop.samples >= _LINE_SAMPLES_MIN
        and _is_of_small_operations(a, loop, common(spent) * loop.samples / everywhere, t)
    ]
    if not loops:
        return Clear(RULE.id)
    step = a.value(STEP_TIME_S)
    best, worst = (_without(a, loops, everywhere, hopeful=hopeful) for hopeful in (True, False))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if lost < t["iterations"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=f"Independent iterations one by one: {loops[0].function}",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(STEP_ITERATIONS_S, common(spent), None, f"of a {duration(step)} step", form="continues"),
            *(_evidence(loop) for loop in loops[:_LOOPS_MAX]),
        ),
        fixes=tuple(_fix(loop) for loop in loops[:_LOOPS_MAX]),
        saving=model_of(a).saving(best, worst, "one operation for all iterations"),
    )


def _batches(a: Analysis) -> float:
    """Backward passes of a step."""
    return max(1.0, common(a.by_rank(STEP_BATCHES) or {0: 1.0}))


def _is_of_small_operations(a: Analysis, loop: IndependentLoop, spent_s: float, t: Thresholds) -> bool:
    """`spent_s`: in this loop outside the backward passes of a step."""
    pass_s = spent_s / _batches(a)
    small = loop.grows or pass_s <= t["each"] * loop.iterations * loop.nodes
    return small and loop.backward_s >= _BACKWARD_MIN * pass_s


def _without(a: Analysis, loops: Sequence[IndependentLoop], everywhere: int, *, hopeful: bool) -> float:
    spared: dict[tuple[int, str], float] = {}
    spending = {rank: seconds for rank, seconds in a.by_rank(STEP_ITERATIONS_S).items() if seconds}
    for rank, seconds in spending.items():
        for loop in loops:
            forward, backward = (1.0 - left for left in _left(loop, hopeful=hopeful))
            # of a loop that is most of the pass, samples show its share better than its time
            within_s = max(seconds * loop.samples / everywhere, loop.share * model_of(a).own[rank]["forward"])
            spared[rank, "forward"] = spared.get((rank, "forward"), 0.0) + forward * within_s
            back_s = min(_batches(a) * loop.backward_s, model_of(a).own[rank]["backward"])  # timed passes are longer
            spared[rank, "backward"] = spared.get((rank, "backward"), 0.0) + backward * back_s
    return step_sparing(a, spared, hopeful=hopeful)


def _left(loop: IndependentLoop, *, hopeful: bool) -> tuple[float, float]:
    """Shares of a loop's time in the forward and in the backward pass that are left with one operation."""
    if loop.grows:
        left = min(1.0, _GROWING_LEFT[not hopeful] * 2.0 / (loop.iterations + 1))
        return left, left
    if loop.over == "squares":
        return _SQUARES_LEFT[not hopeful], _SQUARES_LEFT[not hopeful]
    one = 0.0 if hopeful else 1.0 / loop.iterations
    return _FORWARD_LEFT[not hopeful] + one, _BACKWARD_LEFT[not hopeful] + one


def _evidence(loop: IndependentLoop) -> Evidence:
    again = ", each of which goes through all before it" if loop.grows else ""
    note = f"of {loop.nodes} nodes each in autograd's graph{again}: {loop.file}:{loop.line} in {loop.function}"
    return Evidence("iterations", float(loop.iterations), "", None, note, "explains")


def _fix(loop: IndependentLoop) -> Fix:
    title, change = _GROWING if loop.grows else _FIXES[loop.over]
    return Fix(title, change, Where(loop.file, loop.line), "small change")


RULE = rule(
    __name__,
    "Independent iterations one by one",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "iterations": Threshold(0.06, "of the step: few samples scatter"),
        "each": Threshold(
            50e-6,
            "s for an operation outside the backward pass: of 64 to 95 µs each, 0.46 to 0.73 was left in one operation",
        ),
    },
)
