"""Slow backward pass of indexing.

What it does: finds training on CPUs whose backward passes write whole tensors for parts that the forward pass took or set one by one
(`x[:, t]` in a loop over time steps, `out[:, t] = h`), that torch takes of packed sequences for an LSTM, or add up the gradients of rows
taken by a tensor of indices (`x[idx]`).

Fires when: such nodes of autograd's graph take ≥ 6 % of the step.

Why it is slow: the forward pass of `x[:, t]` costs nothing, but its backward pass fills a tensor of the size of `x` with zeros, writes the
part into it and adds it to the gradient: with T parts the whole is written T times. Each `out[:, t] = h` copies the gradient of all of
`out`. For `x[idx]` torch adds row by row on one thread, in any order of the indices.

Evidence: three backward passes timed node by node, with the elements that the nodes write and those that one pass over the tensors would
write; the lines by stack samples and the source.

Fix: `for part in x.unbind(1)`, `x.split(sizes, dim)` or one `x.unfold(...)` for windows that overlap, taken before the loop; outputs kept
in a list and joined by `torch.stack(outputs, 1)`. For rows `x.index_select(0, idx)`, or `F.embedding(idx, x)` for indices of more
dimensions.

Estimate: the step without the share of its backward pass that these nodes took beyond writing each gradient once; the rest of a pass
became faster, too, since its tensors stay in the caches.

False alarms: below 6 % of the step the rule stays silent, and so it does without a line if torch's own recurrent layers are in the model
and no line is known to pack sequences for an LSTM (a GRU hardly gains without), and on rows of which no line shows one tensor of indices:
for masks and for several tensors of indices other operations gained little. Where a part is taken at places that only the loop knows,
`unbind` does not help; taking all of them at once may. On a GPU the rule is silent: there the time is that of many small kernels, which
CMP003 measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_PARTS_S, STEP_ROWS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import layers_of, step_sparing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LINE_SAMPLES_MIN = 10
_RECURRENT = {"RNN", "LSTM", "GRU"}


# Seconds that a fix saved for each second that such nodes took, both forms of a step in turns in one process (torch 2.14, two threads,
# median of some hundred steps). Parts: recurrent cells over 60 to 400 time steps (inputs taken, outputs set, or both) 0.96, 1.19,
# 1.23, 1.28, 1.31, 1.35, 1.46, 1.52, 1.65, 2.18 and 2.20, windows of a convolution's output 1.04. Rows: three graphs of 2,000 to 20,000
# nodes 0.85, 0.85 and 0.94. The middle of each range is near the median; parts at best leave out the two largest.
_GONE_OF_PARTS, _GONE_OF_ROWS = (1.7, 0.95), (1.0, 0.75)
# Of an LSTM that gets packed sequences, forward and backward pass: 1.32, 1.52, 1.95, 2.66 and 3.22 (64 to 300 inputs, 64 to 256 states,
# 40 to 200 time steps, lengths that differ by up to 90 %): 1.5 to 6.7 times the speed. A GRU and an RNN gained 0.13 to 0.99: left alone.
_GONE_OF_PACKED = (3.2, 1.3)
_GONE_MAX = 0.85  # of what these phases take: 6.7 times the speed


@dataclass(frozen=True, slots=True)
class _Kind:
    """`gone`: see above, at best and at worst. `basis`: of the estimate."""

    measure: RankMeasure
    gone: tuple[float, float]
    title: str
    fix: str
    change: str
    basis: str = "the backward pass without these nodes"


_PARTS = _Kind(
    STEP_PARTS_S,
    _GONE_OF_PARTS,
    "Slow backward pass of slicing: whole tensors written for each part",
    "take all parts at once with x.unbind(dim) before the loop, and join the outputs with torch.stack",
    "for part in x.unbind(1): instead of x[:, t] (x.split for ranges, x.unfold for windows that overlap), and outputs.append(part) with "
    "torch.stack(outputs, 1) instead of out[:, t] = part",
)
_ROWS = _Kind(
    STEP_ROWS_S,
    _GONE_OF_ROWS,
    "Slow backward pass of advanced indexing: rows added one by one",
    "x.index_select(0, idx) instead of x[idx]: its backward pass is faster",
    "for indices of more dimensions F.embedding(idx, x); for single elements x.gather(dim, idx)",
)


_PACKED = _Kind(
    STEP_PARTS_S,
    _GONE_OF_PACKED,
    "Packed sequences: the LSTM computes time step by time step",
    "give the LSTM the padded batch: without packing it computes all time steps in one call",
    "outputs, _ = self.lstm(x); last = outputs[torch.arange(len(x)), lengths - 1]  # the same up to rounding; batches of similar lengths "
    "keep the padding short. In a bidirectional LSTM the backward direction then begins in the padding: check the accuracy",
    "the same LSTM on padded batches",
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    unknown = tuple(measure for measure in (STEP_PARTS_S, STEP_ROWS_S) if not a.by_rank(measure))
    if unknown:
        return NotMeasured(RULE.id, unknown)
    kind, lines = max(
        ((_PARTS, a.part_lines), (_ROWS, a.row_lines)), key=lambda each: common(a.by_rank(each[0].measure))
    )
    step, spent, model = a.value(STEP_TIME_S), a.by_rank(kind.measure), model_of(a)
    best, worst = (_without(a, spent, gone, hopeful=gone == kind.gone[0]) for gone in kind.gone)
    lost = step - _without(a, spent, 1.0, hopeful=False)
    level = severity(lost / step)
    if min(common(spent), lost) < t["indexing"] * step or level is None:
        return Clear(RULE.id)
    line = next((line for line in lines if line.samples >= _LINE_SAMPLES_MIN), None)
    packs = kind is _PARTS and line is None and bool(a.packing_lines)
    if packs:
        kind = _PACKED
        best, worst = (_without(a, spent, gone, hopeful=gone == kind.gone[0], in_both=True) for gone in kind.gone)
    elif line is None and (kind is _ROWS or _takes_parts_itself(a)):
        return Clear(RULE.id)  # indexing by a mask makes nodes of the same class as that by rows
    at = Where(*a.packing_lines[0]) if packs else None if line is None else Where(line.file, line.line)
    return Finding(
        rule=RULE.id,
        title=kind.title,
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=_evidence(a, kind, spent, line, t["indexing"] * step),
        fixes=(Fix(kind.fix, kind.change, at, "small change"),),
        saving=model.saving(best, worst, kind.basis),
    )


def _takes_parts_itself(a: Analysis) -> bool:
    """True if the model has recurrent layers of torch: for packed sequences these take each time step as a part."""
    return any(_RECURRENT & layers_of(facts).keys() for facts in a.rank_facts.values())


def _without(a: Analysis, spent: Mapping[int, float], gone: float, *, hopeful: bool, in_both: bool = False) -> float:
    """The step without this part of what each rank spends on it, in the backward pass or, in proportion, in the forward pass, too."""
    phases = ("forward", "backward") if in_both else ("backward",)
    own = {rank: sum(model_of(a).own[rank][phase] for phase in phases) for rank in spent}
    shares = {(rank, phase): model_of(a).own[rank][phase] / max(own[rank], 1e-12) for rank in spent for phase in phases}
    return step_sparing(
        a,
        {key: min(gone * spent[key[0]], _GONE_MAX * own[key[0]]) * share for key, share in shares.items()},
        hopeful=hopeful,
    )


def _evidence(
    a: Analysis, kind: _Kind, spent: Mapping[int, float], line: HotLine | None, least_s: float
) -> tuple[Evidence, ...]:
    note = f"of a {duration(a.value(STEP_TIME_S))} step"
    found = [Evidence.of(kind.measure, common(spent), least_s, note, form="continues")]
    if line is not None:
        place = f"{line.file}:{line.line} in {line.function}"
        found.append(Evidence("stack samples", float(line.samples), "", None, place))
    return tuple(found)


RULE = rule(
    __name__,
    "Slow backward pass of indexing",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "indexing": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
