"""Logits computed for ignored targets.

What it does: finds training on CPUs whose last layers compute logits for positions whose targets the cross entropy ignores
(`ignore_index`): words that were not masked in a masked language model, prompts in fine-tuning, padding.

Fires when: computing these positions in the layers before the loss takes ≥ 6 % of the step, forward and backward.

Why it is slow: a product with the table of all words or items for each position is often the largest of the model. The
loss of an ignored position is zero and so is its gradient, but its logits are computed, stored, turned into
probabilities and multiplied back.

Evidence: three backward passes timed node by node: of the layers before the loss, the rows whose gradients are zero, and
their part of the time; how many targets the loss ignores.

Fix: choose the positions before the output layer: `hidden[labels != -100]`, and the loss over these alone. It is the same
loss: its mean is over the positions that count.

Estimate: 0.7 to 1.1 times the time of these rows in the backward pass, and in the forward pass 0.1 to 0.7 of it.

False alarms: a loss for each position (`reduction="none"`) that is weighted or chosen from later is not counted, for the choice may need
its result. If accuracy over all positions is logged, it needs them all. On a GPU this is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_IGNORED_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.layers.backward_work import without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 5  # a cross entropy is short beside the layer before it
# Saved for each second of these rows in the backward pass, there and in the forward pass, at best and at worst. Five output layers of
# 1,500 to 20,000 classes, 15 to 50 % of the targets counted, both forms by turns on two cores, twice: 0.92 to 1.09 (1.3 in one), and
# 0.32 to 0.70. Of seven pairs of whole runs, one after the other, four became less fast than foretold by that (0.99 for 1.21, 1.39 for
# 1.76): at worst less.
_OF_BACKWARD, _IN_FORWARD = (1.1, 0.7), (0.7, 0.1)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    ignored = a.by_rank(STEP_IGNORED_S)
    if not ignored:
        return NotMeasured(RULE.id, (STEP_IGNORED_S,))
    step, model = a.value(STEP_TIME_S), model_of(a)
    best, worst = without_rows(a, ignored, _OF_BACKWARD, _IN_FORWARD)
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if level is None or lost < t["ignored"] * step:
        return Clear(RULE.id)
    line = next((line for line in a.loss_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    where = None if line is None else Where(line.file, line.line)
    return Finding(
        rule=RULE.id,
        title="Logits computed for targets that the loss ignores",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=_evidence(a, ignored),
        fixes=(
            Fix(
                "select the positions that count before the output layer",
                "keep = labels != -100 (the loss's ignore_index), then the output layer on hidden[keep] and the loss with labels[keep]",
                where,
                "small change",
            ),
        ),
        saving=model.saving(best, worst, "the layers before the loss compute what it counts"),
    )


def _evidence(a: Analysis, ignored: Mapping[int, float]) -> tuple[Evidence, ...]:
    rank = max(ignored, key=lambda rank: ignored[rank])
    rows, zeros = facts_of(a, rank)["backward_nodes"]["loss_rows"]
    note = f"of a {duration(a.value(STEP_TIME_S))} step, and about half as much in the forward pass"
    return (
        Evidence(
            "ignored targets", zeros / max(1, rows), "share", None, f"of {rows:,} in the passes looked at", "explains"
        ),
        Evidence.of(STEP_IGNORED_S, common(ignored), None, note, form="continues"),
    )


RULE = rule(
    __name__,
    "Logits computed for ignored targets",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "ignored": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
