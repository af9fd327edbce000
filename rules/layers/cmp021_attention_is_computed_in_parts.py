"""Unfused attention.

What it does: finds attention that is computed as a product, a softmax and another product, where torch has one operation for
all of it.

Fires when: attention in parts takes ≥ 8 % of the step: on a CPU in the forward pass alone, by a profile; on a GPU in both
passes, by a deep window or a trace.

Why it is slow: the scores of all pairs of words are written to memory, read for the softmax, written again, read for the
second product, and kept for the backward pass. `scaled_dot_product_attention` computes them block by block in the cache.

Evidence: stack samples in the lines from the first product to the second one, in transformers' `eager_attention_forward`, or
in `nn.MultiheadAttention` where it has to return its weights; on a GPU the kernels from one product to the other, forward
and backward.

Fix: `F.scaled_dot_product_attention(q, k, v, is_causal=True)`, `attn_implementation="sdpa"`, `need_weights=False`.

Estimate: on a CPU what one operation saved in the forward and in the backward pass, measured for thirteen shapes, and at best the
kernel's time for fresh memory, too. At worst it saves nothing: the backward pass computes the scores again, sequences of less than a
hundred words fit the caches, and two threads gained less than one. For GPUs the range comes from one table of a third party.

False alarms: weights that the job uses (plots, distillation, a penalty) only exist in parts. On a CPU torch has no fused
kernel with dropout: there the rule stays silent if weights are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, AttentionLines
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_ATTENTION_S
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_ATTENTION_S, STEP_SYSTEM_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import LAYERS, common, model_of
from rn50_advisor.rules.compute.compute_cost import computing_s, exposed_if, if_computed_faster, loading_floor_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Seconds that one operation saved on a CPU for each second of the forward pass in parts, (at best, at worst). Measured with torch 2.14
# in models of two layers, without dropout, with a heap that keeps its pages, for thirteen shapes of 64 to 1024 words in heads of 16 to
# 64. On one core it saved 0.21 to 0.54 in the forward pass and -0.22 to 0.21 in the backward pass, but 0.53 there for 1024 words with a
# mask. Two threads saved -0.14 to 0.58 and -1.36 to 0.58. Up to 100 words both passes together saved nothing to speak of, and heads of 8
# lost up to 8 % of the step.
_SAVED_FORWARD, _SAVED_BACKWARD = (0.55, 0.2), (0.55, -0.2)
# A heap that returns its memory in each step takes it page by page from the kernel again, for the scores first of all. The kernel took
# up to 1.5 times the forward pass of the attention, and nearly all of that was saved, mostly in the backward pass.
_FAULTS_MAX = 1.5
# Not measured here. The forward pass on an A100, in a third party's table that names no run: 1.3 times as fast for 512 words, 2.7 for 1024,
# 3.3 for 8192 (NousResearch/hermes-agent, optional-skills/mlops/flash-attention/references/benchmarks.md).
_LEFT_ON_GPU = (0.3, 0.8)
_LINE_SAMPLES_MIN = 10
_ELSEWHERE = {
    "transformers": ("use the fused attention of transformers", 'from_pretrained(..., attn_implementation="sdpa")'),
    "multihead": (
        "disable the attention weights of nn.MultiheadAttention",
        "attention(query, key, value, need_weights=False)",
    ),
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, measure = a.value(STEP_TIME_S), KERNEL_ATTENTION_S if a.on_gpu else STEP_ATTENTION_S
    line = next((line for line in a.attention_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    spent = a.by_rank(measure)
    if not spent:
        return Clear(RULE.id) if a.on_gpu and line is None else NotMeasured(RULE.id, (measure,))
    if not a.on_gpu and (line is None or line.drops_weights):
        return Clear(RULE.id)
    fast, slow = (_on_gpu if a.on_gpu else _on_cpu)(a, spent)
    lost = step - (fast + slow) / 2
    level = severity(lost / step)
    if common(spent) < t["attention"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Unfused attention: separate product, softmax and product",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=_evidence(a, measure, spent, step, line),
        fixes=(_fix(line),),
        saving=model_of(a).saving(fast, slow, "scaled_dot_product_attention instead of separate operations"),
    )


def _on_gpu(a: Analysis, spent: Mapping[int, float]) -> tuple[float, float]:
    """The step with one operation, at best and at worst, by what is left of the kernels' time."""
    best, worst = (
        {rank: 1.0 - min(1.0, (1.0 - left) * s / max(computing_s(a, rank), 1e-9)) for rank, s in spent.items()}
        for left in _LEFT_ON_GPU
    )
    return if_computed_faster(a, best, hopeful=True), if_computed_faster(a, worst, hopeful=False)


def _on_cpu(a: Analysis, spent: Mapping[int, float]) -> tuple[float, float]:
    """The step with one operation, at best and at worst, by what the forward pass of the attention takes."""
    (forward, least_forward), (backward, least_backward) = _SAVED_FORWARD, _SAVED_BACKWARD
    kernel = a.by_rank(STEP_SYSTEM_S)
    faults = {rank: min(kernel.get(rank, 0.0), _FAULTS_MAX * s) for rank, s in spent.items()}
    best = {rank: (forward * s, backward * s + faults[rank]) for rank, s in spent.items()}
    worst = {rank: (least_forward * s, least_backward * s) for rank, s in spent.items()}
    return _without(a, best, hopeful=True), _without(a, worst, hopeful=False)


def _without(a: Analysis, saved: Mapping[int, tuple[float, float]], *, hopeful: bool) -> float:
    """The step without these seconds of each rank's forward and backward pass."""
    model = model_of(a)
    changes = {
        (rank, phase): max(0.0, model.own[rank][phase] - seconds)
        for rank, both in saved.items()
        for phase, seconds in zip(LAYERS, both, strict=True)
    }
    left = [
        changes.get((rank, "backward"), own["backward"]) / max(own["backward"], 1e-12)
        for rank, own in model.own.items()
    ]
    return model.step_if(changes, wire_s=exposed_if(a, max(left)), floor_s=loading_floor_s(a, hopeful=hopeful))


def _evidence(
    a: Analysis, measure: RankMeasure, spent: Mapping[int, float], step: float, line: AttentionLines | None
) -> tuple[Evidence, ...]:
    where = "forward and backward pass" if a.on_gpu else "forward pass"
    note = f"of a {duration(step)} step, in the {where}"
    measured = Evidence.of(measure, common(spent), None, note, form="continues")
    if line is None:
        return (measured,)
    place = f"{line.file}:{line.line} in {line.function}"
    return measured, Evidence("stack samples", float(line.samples), "", None, place)


def _fix(line: AttentionLines | None) -> Fix:
    where = Where(line.file, line.line) if line is not None else None
    if line is not None and line.by != "own":
        title, change = _ELSEWHERE[line.by]
        return Fix(f"{title}, unless they are used" if line.by == "multihead" else title, change, where, "one line")
    unless = ", unless the weights that it returns are used" if line is not None and line.keeps_weights else ""
    change = "F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=...); it divides by the root of the head's width itself"
    return Fix(f"one fused operation instead of product, softmax and product{unless}", change, where, "small change")


RULE = rule(
    __name__,
    "Unfused attention",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "attention": Threshold(
            0.08, "of the step: with less, up to a hundred words on a CPU, one operation gained nothing to speak of"
        ),
    },
)
