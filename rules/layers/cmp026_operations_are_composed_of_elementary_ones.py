"""Composed operations.

What it does: finds operations that the user's own code composes of elementary ones although torch has one for the whole (GELU, layer,
batch and instance normalisation, softmax, distances of all pairs, cross entropy of one-hot or smoothed targets, products with one-hot
rows), and slow forms of torch's own: gathers and scatters by an index repeated for each element, sorts for a few elements,
`nn.Embedding(max_norm=...)`, a multivariate normal distribution with a diagonal covariance.

Fires when: they take ≥ 6 % of the step, their share of the backward pass included.

Why it is slow: each elementary operation reads and writes whole tensors, keeps them for its backward pass, and has a pass of its own
there. Distances by broadcasting make a tensor of all pairs and all elements, for which a matrix product needs none.

Evidence: stack samples of the lines outside the backward pass; the elementwise nodes of three backward passes timed one by one.

Fix: the one operation: `F.gelu`, `F.layer_norm`, `torch.cdist`, `F.cross_entropy`, `F.embedding`, `Independent(Normal(...), 1)`.

Estimate: most of what the lines take, and of their elementwise nodes in the backward pass: the shares that one operation saved for
each form, both in turns in one process.

False alarms: below 6 % of the step. A root mean square by hand is none of the forms: `F.rms_norm` gained nothing on a CPU. On a GPU
the host's samples do not show kernels, and the rule is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, ComposedForm, ComposedLines
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_COMPOSED_S, STEP_ELEMENTARY_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 10
_FIXES_MAX = 3
_UNSEEN = 0.5  # of a form's part of the backward pass at worst, where its nodes are not timed


@dataclass(frozen=True, slots=True)
class _Form:
    """`saved`: of the lines and of their nodes in the backward pass, at best and at worst. Ten GPT-2 of two and four layers became 1.04 to
    1.14 times as fast with the other activation, steps of both in turns; for two of these 1.11 was told where 1.14 came, and 1.16, 1.13.
    `backward`: these take at most so many times the
    lines. Measured on a CPU with torch 2.14, two threads, three or four shapes of each, both ways in turns in one process. The best of the
    multivariate normal alone is by a pair of runs (2.27 times as fast): what the distribution is given is computed on lines that do not
    count.
    """

    title: str
    change: str
    saved: tuple[float, float]
    backward: float
    elementwise: bool = True  # its nodes are among those that were timed


_NORM = "the standard deviation by std() divides by n - 1, torch's operation by n"
_FORMS: Mapping[ComposedForm, _Form] = {
    "gelu by tanh": _Form(
        "F.gelu instead of its formula", 'F.gelu(x, approximate="tanh"), of the same values', (1.0, 0.75), 0.8
    ),
    "gelu_new": _Form(
        "gelu_pytorch_tanh instead of gelu_new",
        'activation_function="gelu_pytorch_tanh" (hidden_act in some models) in the config or in from_pretrained(...), of the same values',
        (1.0, 0.75),
        0.8,
    ),
    "gelu": _Form("F.gelu instead of its formula", "F.gelu(x), of the same values", (1.0, 0.65), 1.5),
    "silu": _Form("F.silu instead of its formula", "F.silu(x), of the same values", (0.95, 0.35), 0.9),
    "layer norm": _Form(
        "F.layer_norm instead of its formula",
        f"F.layer_norm(x, x.shape[-1:], weight, bias, eps), over as many of the last dimensions; {_NORM}",
        (1.0, 0.8),
        3.5,
    ),
    "layer norm of channels": _Form(
        "F.layer_norm instead of its formula",
        "F.layer_norm(x.permute(0, 2, 3, 1), (channels,), weight, bias, eps).permute(0, 3, 1, 2)",
        (1.0, 0.8),
        3.5,
    ),
    "batch norm": _Form(
        "F.batch_norm instead of its formula",
        "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)",
        (1.05, 0.65),
        3.6,
    ),
    "instance norm": _Form(
        "F.instance_norm instead of its formula",
        "F.instance_norm(x, weight=weight, bias=bias, eps=eps)",
        (1.05, 0.7),
        2.0,
    ),
    "softmax": _Form(
        "torch.softmax instead of its formula", "torch.softmax(x, -1), which does not overflow either", (1.2, 0.4), 4.0
    ),
    "distances": _Form(
        "torch.cdist instead of the differences of all pairs",
        "torch.cdist(a, b); squares by torch.addmm(a.pow(2).sum(1, keepdim=True) + b.pow(2).sum(1), a, b.T, alpha=-2), which is less "
        "exact for close points",
        (1.15, 0.85),
        5.0,
    ),
    "cross entropy of one-hot targets": _Form(
        "F.cross_entropy instead of one-hot targets",
        "F.cross_entropy(logits, classes, label_smoothing=...)",
        (0.9, 0.4),
        0.4,
    ),
    "product with one-hot rows": _Form(
        "F.embedding instead of a product with one-hot rows",
        "F.embedding(indices, weight)",
        (1.0, 0.7),
        0.6,
        elementwise=False,
    ),
    "layer on one-hot rows": _Form(
        "nn.Embedding instead of a linear layer on one-hot rows",
        "nn.Embedding(classes, width), called with the indices; its weight is the layer's, transposed, and a bias is added apart",
        (1.0, 0.7),
        0.6,
        elementwise=False,
    ),
    "sorted prefix": _Form(
        "topk instead of a whole sort", "x.topk(k, largest=...) for k much smaller than the dimension", (1.0, 0.4), 0.1
    ),
    "repeated index": _Form(
        "expand instead of repeat for the index",
        "index.unsqueeze(-1).expand(-1, width), or index_add_ and index_select, which take one index a row",
        (1.4, 0.8),
        1.0,
    ),
    "smoothed targets": _Form(
        "F.cross_entropy instead of dense targets",
        "F.cross_entropy(logits, classes, label_smoothing=..., ignore_index=...) on logits; the loss differs by about a constant",
        (0.95, 0.55),
        0.2,
    ),
    "norm limited in each lookup": _Form(
        "one renorm_ per step instead of max_norm in each lookup",
        "nn.Embedding without max_norm, and after optimizer.step(): with torch.no_grad(): weight.renorm_(2, 0, max_norm); "
        "for a table of many more rows than a step looks up, in every tenth step",
        (1.2, 0.85),
        0.0,
    ),
    "multivariate normal": _Form(
        "Independent(Normal(mean, std), 1) instead of a multivariate normal",
        "the same distribution for a diagonal covariance",
        (1.2, 0.5),
        1.1,
    ),
}


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
        parts = [(_FORMS[line.form], seconds * line.samples / samples) for line in lines]
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
    form, option = _FORMS[line.form], line.option
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
