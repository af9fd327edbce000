"""Linear layers on repeated rows.

What it does: finds training on CPUs whose linear layers take rows that were repeated before: `linear(cat([a.repeat(...), b.expand(...)]))`
for all pairs, `edges(cat([x[source], x[target]]))` in a graph network, a query that is repeated for each word of its memory.

Fires when: computing repeated rows in linear layers, and joining them, takes ≥ 6 % of the step, forward and backward, and the line that
calls the layer is found.

Why it is slow: a linear layer computes each row by itself, so that equal rows give equal results: n items make n² pairs. Of joined rows it
computes a sum, W [a, b] = V a + U b, of which each part can be computed for the items and added for the pairs.

Evidence: three backward passes timed node by node: of linear layers, the rows of their inputs that `repeat`, `expand` or an index has made
of fewer ones, and their part of the time; stack samples of the call.

Fix: a layer for each part, without a bias for all but one: `left(a).unsqueeze(2) + right(b).unsqueeze(1)`, or `left(x)[source] +
right(x)[target]`. It computes the same.

Estimate: 0.8 to 1.15 times the time of these rows in the backward pass, and in the forward pass 0.4 to 0.75 of it: both forms in turns.

False alarms: only layers that take the repeated rows themselves are counted, not those after them. With dropout in between equal rows
differ, and they are not counted; nor are rows taken by an index for a layer that makes them wider. On a GPU this is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_REPEATED_ROWS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Saved for each second of these rows in the backward pass, there and in the forward pass, at best and at worst. Measured on a CPU with
# torch 2.14, two threads, both forms in turns in one process: all pairs of 10 to 50 items, 32 to 256 wide, 0.83 to 1.08 and 0.42 to 0.60;
# edges of graphs of 500 to 3000 nodes 1.02 to 1.06 and 0.52 to 0.54. Edges whose layer made 64 columns of 32 lost as much as that in the
# backward pass, where rows are then taken of wide tensors: these are not counted.
# In trainings, where other tensors find caches filled, up to a fifth more.
_OF_BACKWARD, _IN_FORWARD = (1.15, 0.8), (0.75, 0.4)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    repeated = a.by_rank(STEP_REPEATED_ROWS_S)
    if not repeated:
        return NotMeasured(RULE.id, (STEP_REPEATED_ROWS_S,))
    step = a.value(STEP_TIME_S)
    best, worst = without_rows(a, repeated, _OF_BACKWARD, _IN_FORWARD)
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    line = sampled(a.repeating_lines)
    if level is None or line is None or lost < t["repeated"] * step:
        return Clear(RULE.id)
    note = f"of a {duration(step)} step in the backward pass, and about half as much in the forward pass"
    return Finding(
        rule=RULE.id,
        title="Linear layers on repeated rows",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(STEP_REPEATED_ROWS_S, common(repeated), None, note, form="explains"),
            line_evidence(line),
        ),
        fixes=(
            Fix(
                "apply the layer to each item before its rows are repeated and joined",
                "a layer for each part of the joined rows, a bias in one of them: left(a).unsqueeze(2) + right(b).unsqueeze(1) for all "
                "pairs, left(x)[source] + right(x)[target] for edges",
                Where(line.file, line.line),
                "small change",
            ),
        ),
        saving=model_of(a).saving(best, worst, "each row computed once"),
    )


RULE = rule(
    __name__,
    "Linear layers on repeated rows",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "repeated": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
