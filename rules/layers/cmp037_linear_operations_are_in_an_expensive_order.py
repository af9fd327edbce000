"""Linear operations in an expensive order.

What it does: finds training on CPUs that applies linear operations one after the other in an order which computes more than needed: `(q @
k.transpose(-2, -1)) @ v` without a softmax in between, `self.head(x).mean(1)`, a 1×1 convolution on the pixels of an enlarged image.

Fires when: another order would spare ≥ 6 % of the step, forward and backward, and the layer has a name in the model or a line that
multiplies is found.

Why it is slow: matrix products, means, sums and resizing are linear, and the result is the same in any order, up to rounding. What is
computed in between is larger in one of them: n × n scores where d × d numbers would do, a prediction for each word whose mean is used.

Evidence: three backward passes timed node by node; of operations whose result nothing else in autograd's graph uses, their shapes, which
tell the work of both orders; stack samples of the line.

Fix: multiply the two other matrices first; average before the layer; apply the convolution before the image is enlarged.

Estimate: 0.7 to 1.1 times what the work of both orders spares of these operations' time in the backward pass, and in the forward pass 0.3
to 0.75 of it: both orders in one process.

False alarms: operations whose other order has more than 70 % of their work are not counted. A convolution that makes more channels is
cheaper after enlarging, and not counted. Where the job reads what is computed in between without gradients, as for a picture of the
scores, it still needs it. On a GPU this is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_ORDERS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.model_documents import OrderKind
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Saved for each second that the work of both orders spares in the backward pass, there and in the forward pass, at best and at worst.
# Measured on a CPU with torch 2.14, two threads, both orders one after the other in one process, 31 sizes: 0.40 to 1.30 and 0.19 to 1.22,
# half of them 0.79 to 1.0 and 0.37 to 0.54. Products of a few tenths of a millisecond and one of 2 ms were lowest.
_OF_BACKWARD, _IN_FORWARD = (1.1, 0.7), (0.75, 0.3)
# What to do, and as code; by the kind of operations.
_ADVICE: dict[OrderKind, tuple[str, str]] = {
    "products": (
        "multiply the two other matrices first",
        "a @ (b @ c) instead of (a @ b) @ c, or the other way round: the sizes of what is computed in between decide",
    ),
    "pooled": (
        "average first, then apply {layer}",
        "self.head(x.mean(1)) instead of self.head(x).mean(1); of a sum, the layer's bias counts once for each row",
    ),
    "enlarged": (
        "apply {layer} first, then enlarge the image",
        "F.interpolate(self.head(x), ...) instead of self.head(F.interpolate(x, ...)), for convolutions of single pixels",
    ),
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spared = a.by_rank(STEP_ORDERS_S)
    if not spared:
        return NotMeasured(RULE.id, (STEP_ORDERS_S,))
    step = a.value(STEP_TIME_S)
    best, worst = without_rows(a, spared, _OF_BACKWARD, _IN_FORWARD)
    lost = step - (best + worst) / 2
    level, found = severity(lost / step), a.reordered
    if level is None or found is None or lost < t["orders"] * step:
        return Clear(RULE.id)
    line = sampled(found.lines)
    if line is None and not found.layer:
        return Clear(RULE.id)
    what, code = _ADVICE[found.kind]
    note = f"of a {duration(step)} step in the backward pass, and about half as much in the forward pass"
    evidence = [Evidence.of(STEP_ORDERS_S, common(spared), None, note, form="explains")]
    if line is not None:
        evidence.append(line_evidence(line))
    return Finding(
        rule=RULE.id,
        title="Linear operations in an expensive order" + (f": {found.layer}" if found.layer else ""),
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=tuple(evidence),
        fixes=(
            Fix(
                what.format(layer=found.layer or "the layer"),
                code,
                None if line is None else Where(line.file, line.line),
                "one line",
            ),
        ),
        saving=model_of(a).saving(best, worst, "the same result, in the order with less work"),
    )


RULE = rule(
    __name__,
    "Linear operations in an expensive order",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "orders": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
