"""Ranks synchronise too often for their batch.

What it does: finds steps whose exchange of gradients takes as long as all their computing, though the path between the ranks is sound.

Why it is slow: the exchange costs the same for one sample as for a thousand. With a small batch per rank there is little to compute for
each exchange, and more ranks make it less.

Evidence: the whole exchange of a step (what the backward pass hides included) against forward, backward and optimizer; the batch per rank;
what each link carried.

Fix: a larger batch per rank, or gradients accumulated over several batches under `model.no_sync()`; learning rate and warm-up go with the
batch. Fewer ranks, where the batch cannot grow.

Estimate: over k batches the exchange is paid once, and so are the update and the waiting for each other. Time per sample, with the k that
brings the exchange below half of the computing. Where the ranks' threads fill the cores, backward gets back what the exchange took of them.

False alarms: a wire that carries less than the path between the ranks should is its own trouble (COM001 comes first then), so is a loop
that exchanges several times in a step already (COM001 says so), and an exchange that could hide behind the backward pass (COM003).
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    carried_evidence,
    computing_s,
    exchange_s,
    exchanges_of,
    gradients_s,
    norms_s,
    path_is_sound,
    taken_from_computing,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_MOST = 16  # batches to one update: beyond it training itself changes
_ENOUGH = 0.5  # of the computing
_WORST = 0.6  # of the predicted gain: batches that are accumulated cost something of their own


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step, whole = gradients_s(a), a.value("step.time_s"), exchange_s(a)
    compute, level = computing_s(a, "forward", "backward", "optimizer"), severity(wire / step)
    if wire < t["wire"] * step or whole < t["compute"] * compute or level is None:
        return Clear(RULE.id)
    model, sound, once = model_of(a), path_is_sound(a), exchanges_of(a) == 1
    times = min(_MOST, max(2, math.ceil(whole / max(_ENOUGH * compute, 1e-9) - 1e-6)))
    best, plain = _over(a, times), step - wire * (1 - 1 / times)
    return Finding(
        rule=RULE.id,
        title="The ranks compute less than they exchange",
        severity=level,
        confidence=confidence(a, cap=0.9 if sound else 0.7),
        seconds_per_step=wire,
        evidence=(
            Evidence(
                "comm.wire_s",
                wire,
                "s",
                t["wire"] * step,
                f"the exchange takes {1000 * whole:.0f} ms, computing {1000 * compute:.0f} ms",
            ),
            *_batch(a),
            *carried_evidence(a),
        ),
        fixes=(
            Fix(
                f"accumulate gradients over {times} batches under model.no_sync(), or {times} times the batch per rank",
                "with model.no_sync(): loss.backward()  # in all but the last of these batches",
                None,
                "small change",
            ),
            Fix("fewer ranks, each with more to compute", "", None, "outside the code"),
        ),
        saving=model.saving(
            model.at_best(min(best, plain)),
            step - _WORST * (step - plain),
            f"one exchange and one update for {times} batches, in time for each of them",
        ),
        explains=("COM001",) if sound and once else (),
        causes=() if sound and once else ("COM001",),
    )


def _over(a: Analysis, times: int) -> float:
    """Seconds of each of so many batches that share an exchange and an update.

    Where cores are short, the part of the exchange that backward hides takes its time from it, and goes as well. Ranks wait for each other
    once: what chance makes one of them late by grows with the root of the batches only.
    """
    model, once = model_of(a), 1.0 / times
    beside_s = taken_from_computing(a) * (exchange_s(a) - gradients_s(a))
    changes = {}
    for rank, own in model.own.items():
        changes[rank, "optimizer"] = own["optimizer"] * once
        changes[rank, "backward"] = own["backward"] - min(own["backward"], beside_s) * (1.0 - once)
    return model.step_if(changes, wire_s=norms_s(a) + gradients_s(a) * once, jitter_s=model.jitter_s * math.sqrt(once))


def _batch(a: Analysis) -> tuple[Evidence, ...]:
    samples = a.get("step.samples")
    return () if not samples else (Evidence("step.samples", samples, "samples", None, "of one rank in a step"),)


RULE = rule(
    __name__,
    "ranks synchronise too often for their batch",
    check,
    needs=("step.time_s", "comm.wire_s"),
    thresholds={
        "wire": Threshold(0.15, "as for COM001: a sound exchange on one host takes up to 13 % of a step"),
        "compute": Threshold(1.0, "times the computing: below it more than half of the step is work"),
    },
)
