"""Synchronization too frequent for the batch size.

What it does: finds steps whose gradient exchange takes as long as all their computing, although the path between the
ranks is sound.

Fires when: the exchange takes as long as all compute, on a sound path, and its exposed part, less two standard errors,
≥ 15 % of the step.

Why it is slow: the exchange costs the same for one sample as for a thousand. A small batch per rank gives little
computing per exchange, and more ranks reduce it further.

Evidence: the whole exchange of a step (including the part that the backward pass hides) against forward, backward and
optimizer; the batch per rank; the bandwidth that each link reached.

Fix: a larger batch per rank, or gradients accumulated over several batches under `model.no_sync()`; adjust the learning
rate and warm-up to the batch. If the batch cannot grow, use fewer ranks. Replace a loop that averages gradients tensor
by tensor by DistributedDataParallel first, which sends them in a few buckets.

Estimate: that of accumulating; larger batches gain at least as much. Over k batches the job pays once for the
exchange, the update and the ranks' waiting for each other. The estimate is the time per sample, with the k that
brings the exchange below half of the computing. If the ranks' threads fill the cores, backward regains the time that
the exchange took from it. For a loop that averages gradients by itself: the exchange's time in as many messages as
DistributedDataParallel has buckets, at worst with the time of its bytes over a sound path on top. (52 tensors of 6.6
MB on two CPU ranks: predicted 2.4 to 4.8 times as fast, measured 3.5 and 3.8.)

False alarms: links that reach less than the path between the ranks should are a separate problem (COM001 then comes
first). So are a loop that already exchanges several times in a step (COM001), and an exchange that could hide behind
the backward pass (COM003). Sharded parameters (FSDP) are gathered for each batch, however many are accumulated.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Saving
from rn50_advisor.advisor.model.job_changes import GradientsKept
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted, duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    DEFAULT_BUCKET_BYTES,
    averages_by_hand,
    carried_evidence,
    computing_s,
    exchange_s,
    gigabytes_of,
    gradients_s,
    largest_model,
    library_of,
    megabytes_of,
    messages_of,
    others_s,
    path_is_sound,
    path_of,
    proven_s,
    taken_from_computing,
    wrapping,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_ACCUMULATION_MAX = 16  # batches per update: beyond it the training result changes
_EXCHANGE_SHARE_GOAL = 0.5  # of the computing
_BY_HAND_SHARE_MIN = 0.8  # as for COM003: of the exposed time, in the job's own calls after the backward pass
_BUNDLED_LEFT_MAX = 0.7  # of an exchange in many messages: else its bytes take the time
_GAIN_SHARE_MIN = 0.6  # of the predicted gain: accumulating batches has a cost of its own


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step, whole = gradients_s(a), a.value(STEP_TIME_S), exchange_s(a)
    compute, level = computing_s(a, "forward", "backward", "optimizer"), severity(wire / step)
    if proven_s(a, wire) < t["wire"] * step or whole < t["compute"] * compute or level is None:
        return Clear(RULE.id)
    if largest_model(a) is None and library_of(a) == "FSDP":
        return Clear(RULE.id)
    model, sound = model_of(a), path_is_sound(a)
    times = min(_ACCUMULATION_MAX, max(2, math.ceil(whole / max(_EXCHANGE_SHARE_GOAL * compute, 1e-9) - 1e-6)))
    best, plain = _accumulated_s(a, times), step - wire * (1 - 1 / times)
    by_hand = largest_model(a) is None and averages_by_hand(a, _BY_HAND_SHARE_MIN)
    bundled = _bundled(a) if by_hand else None
    return Finding(
        rule=RULE.id,
        title="Gradient exchange at least as long as compute",
        severity=level,
        confidence=confidence(a, cap=0.9 if sound else 0.7),
        seconds_per_step=wire,
        evidence=(
            Evidence.of(
                COMM_WIRE_S,
                wire,
                t["wire"] * step,
                f"the exchange takes {duration(whole)}, computing {duration(compute)}",
            ),
            *_batch(a),
            *carried_evidence(a),
        ),
        fixes=(
            *((wrapping(a),) if bundled else ()),
            _accumulating(times, by_hand=by_hand),
            Fix(
                f"or {times} times the batch per rank, which gains at least as much",
                "larger batches also cost less per sample, by how much shows in a run; adjust learning rate and warm-up",
                None,
                "small change",
            ),
            Fix("fewer ranks with a larger batch each", "", None, "outside the code"),
        ),
        saving=bundled
        or model.saving(
            model.at_best(min(best, plain)),
            step - _GAIN_SHARE_MIN * (step - plain),
            f"one exchange and one update per {times} batches, as time per batch",
        ),
    )


def _accumulating(times: int, *, by_hand: bool) -> Fix:
    """A loop that averages gradients by itself has no wrapper with `no_sync`."""
    if by_hand:
        title, change = "", "average gradients only after the last of these batches"
    else:
        title, change = " under model.no_sync()", str(GradientsKept())
    return Fix(f"accumulate gradients over {times} batches{title}", change, None, "small change")


def _bundled(a: Analysis) -> Saving | None:
    """The saving if DistributedDataParallel's buckets replace many small messages; None if their number is not what takes the time."""
    messages, gigabytes, path, whole = messages_of(a), gigabytes_of(a), path_of(a), exchange_s(a)
    if gigabytes is None or path is None:
        return None
    buckets = max(1, math.ceil(megabytes_of(a) * 1e6 / DEFAULT_BUCKET_BYTES))
    at_best = whole * min(1.0, buckets / messages)
    at_worst = at_best + gigabytes / path.gb_per_s
    if at_worst > _BUNDLED_LEFT_MAX * whole:
        return None
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=others_s(a) + min(left, gradients_s(a))) for left in (at_best, at_worst))
    return model.saving(best, worst, f"{counted(buckets, 'bucket')} a step instead of {messages:.0f} messages")


def _accumulated_s(a: Analysis, times: int) -> float:
    """Seconds per batch if this many batches share an exchange and an update.

    If cores are short, the hidden part of the exchange takes its time from backward, which regains it. Ranks wait for each other
    once: random lateness grows only with the square root of the number of batches.
    """
    model, once = model_of(a), 1.0 / times
    beside_s = taken_from_computing(a) * (exchange_s(a) - gradients_s(a))
    changes = {}
    for rank, own in model.own.items():
        changes[rank, "optimizer"] = own["optimizer"] * once
        changes[rank, "backward"] = own["backward"] - min(own["backward"], beside_s) * (1.0 - once)
    return model.step_if(changes, wire_s=others_s(a) + gradients_s(a) * once, jitter_s=model.jitter_s * math.sqrt(once))


def _batch(a: Analysis) -> tuple[Evidence, ...]:
    samples = a.get(STEP_SAMPLES)
    return () if not samples else (Evidence.of(STEP_SAMPLES, samples, note="of one rank in a step", form="explains"),)


RULE = rule(
    __name__,
    "Synchronization too frequent for the batch size",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={
        "wire": Threshold(0.15, "as for COM001: a sound exchange on one host takes up to 13 % of a step"),
        "compute": Threshold(1.0, "times the computing: below it more than half of the step is work"),
    },
)
