"""Rows computed and then left out.

What it does: finds training on CPUs whose layers compute rows that a later line leaves out: `self.head(h)[:, -1]` of all time steps,
`model(x)[mask]`, `model(ids).logits[:, -1]`.

Fires when: computing these rows in layers that take each row by itself takes ≥ 6 % of the step, forward and backward, and the line that
selects is found.

Why it is slow: linear layers, activations and normalisation compute each row by itself, whatever becomes of the others. What is left out is
computed, kept for the backward pass, and gets gradients of zeros, which are multiplied back through the same layers.

Evidence: three backward passes timed node by node: of the layers before a selection, the rows whose gradients are zero, at most as many as
the selection leaves out, and their part of the time; stack samples of the call whose result is selected from.

Fix: select first: `self.head(h[:, -1])`. It computes the same.

Estimate: 0.7 to 1.1 times the time of these rows in the backward pass, and in the forward pass 0.3 to 0.7 of it.

False alarms: layers that mix rows (recurrent layers, attention, convolutions) are not counted, nor rows that anything else uses. If what is
selected depends on the result itself, as the hardest examples do, all of it is needed. On a GPU this is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S, STEP_UNSELECTED_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Saved for each second of these rows in the backward pass, there and in the forward pass, at best and at worst.
_OF_BACKWARD, _IN_FORWARD = (1.1, 0.7), (0.7, 0.3)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    unselected = a.by_rank(STEP_UNSELECTED_S)
    if not unselected:
        return NotMeasured(RULE.id, (STEP_UNSELECTED_S,))
    step = a.value(STEP_TIME_S)
    best, worst = without_rows(a, unselected, _OF_BACKWARD, _IN_FORWARD)
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    line = sampled(a.selecting_lines)
    if level is None or line is None or lost < t["unselected"] * step:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Rows computed and then left out",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(
                STEP_UNSELECTED_S,
                common(unselected),
                None,
                f"of a {duration(step)} step in the backward pass, and about half as much in the forward pass",
                form="explains",
            ),
            line_evidence(line),
        ),
        fixes=(
            Fix(
                "select the rows before the layers",
                "for instance self.head(h[:, -1]) instead of self.head(h)[:, -1]; with the library's option where a model has one "
                "(logits_to_keep=1)",
                Where(line.file, line.line),
                "small change",
            ),
        ),
        saving=model_of(a).saving(best, worst, "the layers compute what is used"),
    )


RULE = rule(
    __name__,
    "Rows computed and then left out",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "unselected": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
