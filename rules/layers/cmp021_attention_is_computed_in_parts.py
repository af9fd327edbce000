"""Attention is computed in parts.

What it does: finds attention that is computed as a product, a softmax and another product, where torch has one operation for
all of it.

Fires when: attention in parts takes ≥ 8 % of the step: on a CPU by a profile of the forward pass, on a GPU by a deep window
or a trace.

Why it is slow: the scores of all pairs of words are written to memory, read for the softmax, written again, read for the
second product, and kept for the backward pass. `scaled_dot_product_attention` computes them block by block in the cache.

Evidence: stack samples in the lines from the first product to the second one, in transformers' `eager_attention_forward`, or
in `nn.MultiheadAttention` where it has to return its weights; on a GPU the kernels from one product to the other, forward
and backward.

Fix: `F.scaled_dot_product_attention(q, k, v, is_causal=True)`, `attn_implementation="sdpa"`, `need_weights=False`.

Estimate: the share of its time that attention kept when it was computed by one operation, measured for eleven shapes on a
CPU, and for GPUs from one table of a third party. At worst a CPU gains nothing: sequences of less than a hundred words fit its caches.

False alarms: weights that the job uses (plots, distillation, a penalty) only exist in parts. On a CPU torch has no fused
kernel with dropout: there the rule stays silent if weights are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, AttentionLines
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_ATTENTION_S
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_ATTENTION_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import computing_s, if_computed_faster
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the time that attention in parts took, (at best, at worst). Measured with torch 2.14 on one core, forward and backward, no dropout:
# 0.93 and 0.96 for 64 words and heads of 32, 0.40 and 0.46 for 128; 0.87, 0.78 for 128 words and heads of 64, 0.42 to 0.74 for 196 to 256,
# 0.36 and 0.49 for 512, 0.25 and 0.49 for 1024. With dropout it was 0.58 to 1.24. A model for pictures, 65 words, gained nothing.
_LEFT_ON_CPU = (0.35, 1.0)
# Not measured here. The forward pass on an A100, in a third party's table that names no run: 1.3 times as fast for 512 words, 2.7 for 1024,
# 3.3 for 8192 (NousResearch/hermes-agent, optional-skills/mlops/flash-attention/references/benchmarks.md).
_LEFT_ON_GPU = (0.3, 0.8)
# The backward pass, times the forward pass, on a CPU: 1.1 to 2.7 in these; 3.5 and 5.6 in two that took a few milliseconds.
_BACKWARD = (1.1, 2.7)
_LINE_SAMPLES_MIN = 10
_ELSEWHERE = {
    "transformers": ("let transformers call the fused operation", 'from_pretrained(..., attn_implementation="sdpa")'),
    "multihead": ("let nn.MultiheadAttention return no weights", "attention(query, key, value, need_weights=False)"),
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, measure = a.value(STEP_TIME_S), KERNEL_ATTENTION_S if a.on_gpu else STEP_ATTENTION_S
    line = next((line for line in a.attention_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    spent = a.by_rank(measure)
    if not spent:
        return Clear(RULE.id) if a.on_gpu and line is None else NotMeasured(RULE.id, (measure,))
    if not a.on_gpu and (line is None or line.drops_weights):
        return Clear(RULE.id)
    least, most = (
        {rank: s * (1.0 if a.on_gpu else 1.0 + backward) for rank, s in spent.items()} for backward in _BACKWARD
    )
    best, worst = _LEFT_ON_GPU if a.on_gpu else _LEFT_ON_CPU
    fast, slow = _step(a, most, best, hopeful=True), _step(a, least, worst, hopeful=False)
    lost = step - (fast + slow) / 2
    level = severity(lost / step)
    if common(least) < t["attention"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Attention is computed in parts instead of by one fused operation",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=_evidence(a, measure, spent, step, line),
        fixes=(_fix(line),),
        saving=model_of(a).saving(fast, slow, "scaled_dot_product_attention in place of the parts"),
    )


def _step(a: Analysis, spent: Mapping[int, float], left: float, *, hopeful: bool) -> float:
    """The step if this share of the time in attention were left."""
    shares = {rank: 1.0 - min(1.0, (1.0 - left) * s / max(computing_s(a, rank), 1e-9)) for rank, s in spent.items()}
    return if_computed_faster(a, shares, hopeful=hopeful)


def _evidence(
    a: Analysis, measure: RankMeasure, spent: Mapping[int, float], step: float, line: AttentionLines | None
) -> tuple[Evidence, ...]:
    where = "forward and backward pass" if a.on_gpu else "forward pass"
    note = f"of a {1000 * step:.3g} ms step, in the {where}"
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
    "attention is computed in parts",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "attention": Threshold(0.08, "of the step: of less, a fused operation saves a few per cent at most"),
    },
)
