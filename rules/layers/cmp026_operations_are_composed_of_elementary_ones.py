"""Composed operations.

What it does: finds operations that the user's own code composes of elementary ones although torch has one for the whole (GELU and
other activations, layer, batch and instance normalisation, softmax and its logarithm, losses such as the cross entropy of one-hot or
smoothed targets, distances, similarities and products of all pairs by broadcasting, products with one-hot rows and diagonal matrices,
convolutions by `F.unfold`), and slow forms of torch's own: gathers and scatters by an index repeated for each element, sorts for a few
elements, `nn.Embedding(max_norm=...)`, a multivariate normal distribution with a diagonal covariance.

Fires when: they take ≥ 6 % of the step, their share of the backward pass included.

Why it is slow: each elementary operation reads and writes whole tensors, keeps them for its backward pass, and has a pass of its own
there. Distances, similarities and products by broadcasting make a tensor of all pairs and all elements, for which a
matrix product needs none; `F.unfold` copies each pixel as often as a kernel covers it.

Evidence: stack samples of the lines outside the backward pass; the elementwise nodes of three backward passes timed one by one.

Fix: the one operation: `F.gelu`, `F.layer_norm`, `torch.cdist`, `F.cross_entropy`, `F.embedding`, `Independent(Normal(...), 1)`.

Estimate: most of what the lines take, and of their elementwise nodes in the backward pass: the shares that one operation saved for
each form, both in turns in one process.

False alarms: below 6 % of the step. A root mean square by hand is none of the forms: `F.rms_norm` gained nothing on a CPU. Neither is
Mish or softplus, nor a binary cross entropy of probabilities: torch's operations took longer there. On a GPU
the host's samples do not show kernels, and the rule is silent.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis, ComposedLines
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_COMPOSED_S, STEP_ELEMENTARY_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import step_sparing
from rn50_advisor.rules.layers.composed_advice import FORMS
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 10
_FIXES_MAX = 3
_UNSEEN = 0.5  # of a form's part of the backward pass at worst, where its nodes are not timed


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spent, backward = a.by_rank(STEP_COMPOSED_S), a.by_rank(STEP_ELEMENTARY_S)
    if not spent:
        return NotMeasured(RULE.id, (STEP_COMPOSED_S,))
    lines = [line for line in a.composed_lines if line.samples >= _LINE_SAMPLES_MIN]
    if not lines:
        return Clear(RULE.id)
    step = a.value(STEP_TIME_S)
    best, worst = (_without(a, lines, spent, backward, hopeful=hopeful) for hopeful in (True, False))
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if lost < t["composed"] * step or level is None:
        return Clear(RULE.id)
    note = f"of a {duration(step)} step, outside the backward pass"
    return Finding(
        rule=RULE.id,
        title="Operations composed of elementary ones, or in a slow form",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(STEP_COMPOSED_S, common(spent), None, note, form="continues"),
            *(Evidence("stack samples", float(line.samples), "", None, _place(line)) for line in lines[:_FIXES_MAX]),
        ),
        fixes=tuple(_fix(line) for line in lines[:_FIXES_MAX]),
        saving=model_of(a).saving(best, worst, "one operation each"),
    )


def _without(
    a: Analysis,
    lines: list[ComposedLines],
    spent: Mapping[int, float],
    backward: Mapping[int, float],
    *,
    hopeful: bool,
) -> float:
    """The step with one operation for each of these. Elementwise nodes of a backward pass may be others', and unknown ones none."""
    samples = sum(line.samples for line in lines)
    spared: dict[tuple[int, str], float] = {}
    for rank, seconds in spent.items():
        parts = [(FORMS[line.form], seconds * line.samples / samples) for line in lines]
        nodes = sum(form.backward * part for form, part in parts if form.elementwise)
        timed = min(1.0, backward.get(rank, nodes if hopeful else 0.0) / max(nodes, 1e-12))
        seen = {True: timed, False: 1.0 if hopeful else _UNSEEN}
        spared[rank, "forward"] = sum(form.saved[not hopeful] * part for form, part in parts)
        spared[rank, "backward"] = sum(
            form.saved[not hopeful] * seen[form.elementwise] * form.backward * part for form, part in parts
        )
    return step_sparing(a, spared, hopeful=hopeful)


def _place(line: ComposedLines) -> str:
    return f"{line.form}: {line.file}:{line.line} in {line.function}"


def _fix(line: ComposedLines) -> Fix:
    form, option = FORMS[line.form], line.option
    where = Where(line.file, line.line) if option is None else Where(option["file"], option["line"])
    return Fix(form.title, form.change, where, "one line")


RULE = rule(
    __name__,
    "Composed operations",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "composed": Threshold(0.06, "of the step, by the middle of the estimate: severity 'medium' begins at 5 %"),
    },
)
