"""Operator dispatch overhead.

What it does: finds training on CPUs whose steps consist of so many small tensor operations that dispatch dominates
compute: a recurrent cell that Python calls for each time step, a loop over samples, micro-batches of a few
samples.

Fires when: calling operations takes ≥ 18 % of forward and backward pass (≤ 50 µs for an operation in all), and the
model's layers are called in a loop or a batch has ≤ 4 samples.

Why it is slow: Python, the dispatcher and autograd spend 9 to 20 microseconds on each operation and its backward pass,
however small its tensors are. One operation on all time steps or samples costs that once.

Evidence: the differentiable operations of a step, which autograd numbers; the CPU time of forward and backward pass for
each; how many there are for each layer of the model, and samples in a batch.

Fix: for `nn.LSTMCell`, `nn.LSTM` over all time steps, at the line that the forward pass spends its time in. A recurrent
layer that the model calls step by step gets all of them in one call, or as many as lie between two resets of its state. For other
loops, one call for all samples or time steps where they do not depend on each other, and for what is only read of each
state (a head, a loss). Where the source shows that no iteration needs another one, CMP029 says so, with a narrower
gain. Where it shows that each goes on from the result of the one before and takes nothing else, no single call can
replace them: the finding is low, without a gain. Under gradient accumulation larger micro-batches and fewer of them,
which leaves the update as it is; without it a larger batch.

Estimate: `nn.LSTM` saves 9 to 22 microseconds for each operation, at most 85 to 95 % of forward and backward pass. What
does not depend on the number of samples of a batch is the calling of operations, 9 microseconds each, and what passes through
the parameters, 0.67 nanoseconds for each: 0.75 to 1.35 times their sum, or up to all of the time where layers are
convolutions. What another loop gains is not known: between nothing and nearly all of it. Larger batches are at best fetched as quickly
as small ones, and at best the rest of the step needs 30 % of its time, in caches that so many calls no longer empty.

False alarms: a loop that steps along a sequence by its own results, too (attention inside a decoder), has to stay; only larger batches
help it. The microseconds are those of cores of about 3 GHz: faster ones
dispatch sooner and gain less. On a GPU the rule stays silent: there CMP003 measures how long the GPU waits for the host.
`nn.GRU` and `nn.RNN`, which torch computes step by step on a CPU, are a low finding: another layer is another model.
`nn.GRU` is no advice for `nn.GRUCell`, and `torch.compile` none for the cell, which became no faster and took minutes
to compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Saving, Where
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_BATCHES,
    STEP_OPERATION_S,
    STEP_OPERATIONS,
    STEP_SAMPLES,
    STEP_TIME_S,
)
from rn50_advisor.probes.documents.model_documents import ModelFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.rules.analysis_reading import LAYERS, common, model_of, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of, layers_of, loading_floor_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Seconds to call one operation and its backward pass. Measured with torch 2.14 on one of two cores, CPU time of the thread, several times
# each; other programs on the cores made it up to twice as long. Chains of additions and sigmoids on 4 numbers took 9 to 13 us; with tensors
# of up to 32 x 32 cells of LSTMs 10 to 20, of GRUs 12 to 20, loops over samples 15 to 20, perceptrons 16 to 30. Sound jobs took 84 to 98
# (four transformer layers, 256 words), 97 to 116 (twelve layers), 160 to 180 (mobilenet_v2), 240 to 270 (densenet121), 990 and more
# (ResNet18). Perceptrons of 16 to 64 rows, 26 to 60 us, have neither a loop nor few samples.
_DISPATCH_S = (9e-6, 20e-6)
# An LSTM's 1204 or 1504 operations became 9. Of 11 us for each 9.5 were spared (width 32, 16 sequences), of 18 us 12 (96, 32), of 31 us 15
# (160, 32); in busier minutes of 16 us 14 (32, 8), of 24 us 17 (64, 32), of 37 us 22 (128, 32); on a slower machine 17 of 18 us (32, 16).
# Of 81 and 130 us (224 and 256, 64) none were spared, since arithmetic took the time.
_FUSED_SPARES_S, _FUSED_GONE_MAX = (9e-6, 22e-6), (0.85, 0.95)
# Time left of forward and backward pass with one call for 32 to 128 time steps, or four, in place of one for each, at best and at worst:
# both by turns, width 32 to 256, four sequences and 32.
_LEFT_IN_ONE_CALL = {"LSTM": (0.06, 0.32), "GRU": (0.45, 0.79), "RNN": (0.30, 0.65)}
_LEFT_OF_FEW = {"LSTM": (0.06, 0.16), "GRU": (0.45, 0.60), "RNN": (0.30, 0.45)}
_LEFT_OF_MANY = {"LSTM": (0.11, 0.32), "GRU": (0.45, 0.79), "RNN": (0.35, 0.65)}
_FEW_SEQUENCES, _MANY_SEQUENCES = 4, 32
_LOOP_GONE_MAX = 0.97  # by one call for 32 rows instead of 32 for a row each, through a perceptron
# Seconds of forward and backward pass that do not depend on the number of samples, beside `_DISPATCH_S`: for each parameter, which is read
# twice, and whose gradient is written and added. By a line through two batches, of one, two and four samples and of 16, this part was:
# perceptrons of width 64 to 1024, 88 to 100 %; four to six transformer layers of width 64 and 128, 16 to 64 words, 41 to 86, 26 to 76 and
# 9 to 62 %; of width 256 45, 31 and 22 %; six to eight convolutions 85 to 90, 77 to 90 and 59 to 83 %. The sum of both is 0.83 to 1.5 times
# that of transformers, but for one of 65 us for each operation; of convolutions a fifth, since each of their calls takes 40 us. A training
# with 16 micro-batches of one became 18 times as fast without them: gradients are no longer added, either.
_PARAMETER_S = 0.67e-9
_FIXED, _FIXED_MAX_WORST = (0.75, 1.35), 0.8
_OF_EACH_BATCH = ("input_wait", "gap")
# Share of the step's other phases that is left at best when forward and backward pass nearly vanish, because their thousands of calls no
# longer push the rest out of the caches. Measured: fetching 0.29 and 0.30, the optimizer 0.38, 0.45 and 0.64, between the steps 0.44.
_WARM_LEFT = 0.3
_BATCH_ENOUGH = 16  # samples
_LINE_SAMPLES_MIN = 10
_CHAINED_MIN = 0.5  # of the samples outside backward passes
_STEPWISE = ("GRU", "RNN")  # torch's own loops over time steps on a CPU


@dataclass(frozen=True, slots=True)
class _Calls:
    """Of one rank: operations and samples of a micro-batch, micro-batches of a step, operations for each layer of the model."""

    operations: float
    samples: float
    batches: int
    repeats: float


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    counts, each = a.by_rank(STEP_OPERATIONS), a.by_rank(STEP_OPERATION_S)
    if len(counts) < len(model_of(a).own):
        return NotMeasured(RULE.id, (STEP_OPERATIONS,))
    most_s = _DISPATCH_S[0] / t["calling"]
    step, rank = a.value(STEP_TIME_S), next((rank for rank in each if each[rank] <= common(each)), min(counts))
    calls, layers = _calls(a, rank), layers_of(facts_of(a, rank))
    # one such call is many operations, of which autograd counts one: its time says nothing, and its line is seen in a loop
    again = None if layers.get("LSTMCell") else _called_again(a, layers)
    if not each or (common(each) > most_s and again is None):
        return Clear(RULE.id)
    small = 0 < calls.samples <= t["samples"]
    loops = again is not None or (calls.repeats >= t["repeats"] and calls.operations >= t["operations"])
    chained = _chained(a) if loops and not small and again is None else None
    fixes: tuple[Fix, ...]
    saving: Saving | None
    if chained is not None:
        fixes, saving, lost = (_within(chained),), None, _dispatching_s(a)
    elif loops:
        fixes, saving, lost = _of_loop(a, rank, small=small, calls=calls)
    elif small:
        fixes, saving, lost = _of_small_batches(a, facts_of(a, rank), each[rank], calls)
    else:
        return Clear(RULE.id)
    level = severity(lost / step)
    if level is None:
        return Clear(RULE.id)
    if chained is not None or (loops and not small and again is None and _stepwise(a, layers) is not None):
        level = "low"  # another layer is another model, and what can leave a loop is not known
    return Finding(
        rule=RULE.id,
        title="Operator dispatch overhead: many tiny operations",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=_evidence(calls, counts[rank], each[rank], most_s, loops=loops)
        if again is None
        else _evidence_of_calls(counts[rank], again[1]),
        fixes=fixes,
        saving=saving,
    )


def _calls(a: Analysis, rank: int) -> _Calls:
    batches = max(1, round(a.get(STEP_BATCHES, rank) or 1.0))
    operations = a.value(STEP_OPERATIONS, rank) / batches
    layers = sum(layers_of(facts_of(a, rank)).values())
    samples = (a.get(STEP_SAMPLES, rank) or 0.0) / batches
    return _Calls(operations, samples, batches, operations / layers if layers else 0.0)


def _of_loop(a: Analysis, rank: int, *, calls: _Calls, small: bool) -> tuple[tuple[Fix, ...], Saving, float]:
    """(fixes, saving, seconds lost) where the layers are called in a loop."""
    model, layers = model_of(a), layers_of(facts_of(a, rank))
    line = next((line for line in a.forward_lines if line.samples >= _LINE_SAMPLES_MIN), None)
    where = Where(line.file, line.line) if line is not None else None
    more = (_larger_batches(a, calls),) if small else ()
    if layers.get("LSTMCell"):
        worst, best = (
            _step_sparing(a, spared_s, most, hopeful=spared_s == _FUSED_SPARES_S[1])
            for spared_s, most in zip(_FUSED_SPARES_S, _FUSED_GONE_MAX, strict=True)
        )
        fused = Fix(
            "one call of nn.LSTM for all time steps, unless a step's input needs the output of the one before",
            "nn.LSTM(input_size, hidden_size, batch_first=True), and outputs, state = lstm(inputs), instead of nn.LSTMCell in a loop",
            where,
        )
        saving = model.saving(best, worst, "nn.LSTM instead of one call of nn.LSTMCell for each time step")
        return (fused, *more), saving, model.step_s - (best + worst) / 2
    again = _called_again(a, layers)
    if again is not None:
        layer, line = again
        best, worst = (_step_in_one_call(a, line.share, left) for left in _left_in_one_call(layer, calls.samples))
        once = Fix(
            f"pass many time steps to nn.{layer} in one call",
            f"all of them, or those between two resets of its state: outputs, state = {layer.lower()}(inputs, state)",
            Where(line.file, line.line),
        )
        saving = model.saving(best, worst, f"nn.{layer} called once for many time steps")
        return (once, *more), saving, model.step_s - (best + worst) / 2
    lost = _dispatching_s(a)
    most = _step_sparing(a, _FUSED_SPARES_S[1], _LOOP_GONE_MAX, hopeful=True)
    saving = model.saving(most, model.step_s, "at best no dispatch overhead")
    stepwise = _stepwise(a, layers)
    if stepwise is not None:
        title = (
            f"pass all time steps to nn.{stepwise} in one call; if that is already so, use nn.LSTM, or larger batches"
        )
        change = f"on a CPU torch has one operation for all steps of nn.LSTM, and computes nn.{stepwise} step by step; try it"
        return (Fix(title, change, where), *(more or (_larger_batches(a, calls),))), saving, lost
    title = "one call for all independent samples or time steps instead of one for each"
    change = (
        "stack them into one tensor and call the model once, also for what is read of a state: after the loop, of torch.stack(states); or "
        "use nn.LSTM instead of a custom cell; try it"
    )
    return (Fix(title, change, where), *more), saving, lost


def _dispatching_s(a: Analysis) -> float:
    """Seconds of a step in which operations are called, at least."""
    return model_of(a).step_s - _step_sparing(a, _DISPATCH_S[0], 1.0)


def _chained(a: Analysis) -> HotLine | None:
    """The loop that most of the step outside the backward pass is in, if its iterations need each other's results and nothing else."""
    share = sum(loop.share for loop in a.chained_loops)
    longest = next((loop for loop in a.chained_loops if loop.samples >= _LINE_SAMPLES_MIN), None)
    return longest if share >= _CHAINED_MIN else None


def _within(loop: HotLine) -> Fix:
    return Fix(
        "fewer operations in each iteration, since the next one needs its result",
        "compute before or after the loop what does not change in it or is only read of it; larger batches make as many calls",
        Where(loop.file, loop.line),
    )


def _called_again(a: Analysis, layers: Mapping[str, int]) -> tuple[str, HotLine] | None:
    """The recurrent layer that a loop of the job calls for each time step, and the line."""
    for line in a.recurrent_lines:
        layer = line.leaf or next((each for each in _LEFT_IN_ONE_CALL if layers.get(each)), "")
        if layer in _LEFT_IN_ONE_CALL and line.samples >= _LINE_SAMPLES_MIN:
            return layer, line
    return None


def _left_in_one_call(layer: str, sequences: float) -> tuple[float, float]:
    """What one call leaves at best and at worst; more sequences compute for longer beside the same number of calls."""
    if sequences <= 0:
        return _LEFT_IN_ONE_CALL[layer]
    known = _LEFT_OF_FEW if sequences <= _FEW_SEQUENCES else _LEFT_OF_MANY if sequences >= _MANY_SEQUENCES else {}
    return known.get(layer, _LEFT_IN_ONE_CALL[layer])


def _step_in_one_call(a: Analysis, share: float, left: float) -> float:
    """The step if this share of forward and backward pass is left to this part."""
    model, kept = model_of(a), 1.0 - share * (1.0 - left)
    return model.step_if({(rank, phase): kept * own[phase] for rank, own in model.own.items() for phase in LAYERS})


def _stepwise(a: Analysis, layers: Mapping[str, int]) -> str | None:
    """The layer in which torch itself loops over time steps; `layers` may miss it where the job calls parts of its model."""
    inside = [line.leaf for line in a.forward_lines if "(rnn.py:" in line.leaf]
    return next(
        (kind for kind in _STEPWISE if layers.get(kind) or any(leaf.startswith(f"{kind}.") for leaf in inside)), None
    )


def _of_small_batches(
    a: Analysis, facts: RankFacts, each_s: float, calls: _Calls
) -> tuple[tuple[Fix, ...], Saving, float]:
    """(fixes, saving, seconds lost for a step's samples) where the batches have few samples."""
    model, times = model_of(a), _times(calls)
    worst, best = (
        _step_of_batches(a, fixed, times, whole=calls.batches == 1, hopeful=hopeful)
        for fixed, hopeful in zip(_fixed(facts, each_s, calls), (False, True), strict=True)
    )
    basis = f"{times} batches computed as one: one call per operation"
    return (_larger_batches(a, calls),), model.saving(best, worst, basis), model.step_s - (best + worst) / 2


def _fixed(facts: RankFacts, each_s: float, calls: _Calls) -> tuple[float, float]:
    """Shares of forward and backward pass that do not depend on the number of samples, at worst and at best."""
    parameters = facts.get("model", ModelFacts()).get("parameters", 0)
    once_s = _DISPATCH_S[0] * calls.operations + _PARAMETER_S * parameters
    worst, best = (times * once_s / max(each_s * calls.operations, 1e-9) for times in _FIXED)
    called_slowly = not parameters or any(kind.startswith("Conv") for kind in layers_of(facts))
    return min(worst, _FIXED_MAX_WORST), 1.0 if called_slowly else min(best, 1.0)


def _times(calls: _Calls) -> int:
    """How many batches become one: as many as make up enough samples, and under accumulation a part of them that leaves no rest."""
    most = max(2, int(_BATCH_ENOUGH // max(calls.samples, 1.0)))
    if calls.batches == 1:
        return most
    return max((n for n in range(2, most + 1) if calls.batches % n == 0), default=calls.batches)


def _larger_batches(a: Analysis, calls: _Calls) -> Fix:
    times = _times(calls)
    where = where_of(a.training_loader(min(model_of(a).own)))
    size = f"{times * calls.samples:.0f}" if calls.samples else "more samples"
    if calls.batches == 1:
        change = f"batch_size={size}; gradient accumulation does not help, it makes as many calls"
        return Fix(f"batches of {size}, with the learning rate set for them", change, where)
    left = calls.batches // times
    fewer = "no gradient accumulation" if left == 1 else f"gradient accumulation over {left} instead of {calls.batches}"
    change = f"batch_size={size}, {fewer}; the update stays the same where each loss is divided by their number"
    return Fix(f"micro-batches of {size} instead of {calls.samples:.0f} samples, and fewer of them", change, where)


def _step_sparing(a: Analysis, spared_s: float, most: float, *, hopeful: bool = False) -> float:
    """The step if each operation took so much less, but at most this part of forward and backward pass went."""
    model, changes = model_of(a), dict[tuple[int, str], float]()
    for rank, each_s in a.by_rank(STEP_OPERATION_S).items():
        left = 1.0 - min(most, spared_s / max(each_s, 1e-9))
        changes |= _left(model.own[rank], rank, left, hopeful=hopeful)
    return model.step_if(changes, floor_s=loading_floor_s(a, hopeful=hopeful))


def _left(own: Mapping[str, float], rank: int, left: float, *, hopeful: bool) -> dict[tuple[int, str], float]:
    """A rank's phases if this share of forward and backward pass is left. `hopeful`: the others then find warm caches."""
    gone = (1.0 - left) * sum(own[phase] for phase in LAYERS) / max(sum(own.values()), 1e-9)
    others = 1.0 - (1.0 - _WARM_LEFT) * gone if hopeful else 1.0
    return {(rank, phase): (left if phase in LAYERS else others) * seconds for phase, seconds in own.items()}


def _step_of_batches(a: Analysis, fixed: float, times: int, *, whole: bool, hopeful: bool) -> float:
    """The step for the same samples if so many batches were one, and this part of forward and backward pass took place once for them.

    `whole`: these are batches of several steps, so that optimizer and exchange, too, take place once. `hopeful`: fetching a batch and
    what the loop does for it cost the same for any number of samples; otherwise they cost as much as today's batches together.
    """
    model, changes = model_of(a), dict[tuple[int, str], float]()
    once = (*(_OF_EACH_BATCH if hopeful else ()), *(("optimizer",) if whole else ()))
    for rank, own in model.own.items():
        changes |= _left(own, rank, 1.0 - fixed + fixed / times, hopeful=hopeful)
        changes |= {(rank, phase): own[phase] / times for phase in once}
    wire_s = model.wire_s / times if whole else None
    return model.step_if(changes, wire_s=wire_s, floor_s=0.0 if hopeful else loading_floor_s(a, hopeful=False))


def _evidence(calls: _Calls, count: float, each_s: float, most_s: float, *, loops: bool) -> tuple[Evidence, ...]:
    low, high = (f"{1e6 * s:.0f}" for s in _DISPATCH_S)
    note = f"in the forward and backward pass: calling alone takes {low} to {high} µs"
    if loops:
        why = Evidence(
            "operations of a layer", calls.repeats, "", None, "in a batch: it is called again and again", "explains"
        )
    else:
        why = Evidence(
            "samples of a batch", calls.samples, "", None, "for all of which an operation is called once", "explains"
        )
    return (
        Evidence.of(STEP_OPERATIONS, count, None, "in the forward pass of a step", form="continues"),
        Evidence.of(STEP_OPERATION_S, each_s, most_s, note, form="explains"),
        why,
    )


def _evidence_of_calls(count: float, line: HotLine) -> tuple[Evidence, ...]:
    place = f"{line.file}:{line.line} in {line.function}, {100 * line.share:.0f} % of those in the forward pass"
    return (
        Evidence.of(STEP_OPERATIONS, count, None, "in the forward pass of a step", form="continues"),
        Evidence("stack samples", float(line.samples), "", None, f"in one time step's call: {place}", "continues"),
    )


RULE = rule(
    __name__,
    "Operator dispatch overhead",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "calling": Threshold(
            0.18, "of forward and backward pass at 9 µs an operation: 16 samples hardly took longer than 4 up to there"
        ),
        "operations": Threshold(100, "in a batch: calling fewer takes a millisecond or two"),
        "repeats": Threshold(
            20, "operations for each layer of the model: one call makes 1 (ResNet18) to 7 (a transformer)"
        ),
        "samples": Threshold(4, "in a batch: with more, sound jobs have small operations, too"),
    },
)
