"""The wire limits the step.

What it does: finds steps in which even the rank that arrives last still waits for its gradients to be exchanged.

Why it is slow: the all-reduce needs longer than the backward pass that hides it. Waiting for a straggler is not counted: of one and the
same collective the shortest duration is the wire, the rest is waiting for the last arrival.

Evidence: exposed communication of the last rank as a share of the step, from DistributedDataParallel's own stamps; gradient bytes.

Fix: fewer bytes (bf16 or fp16 compression hook), fewer exchanges (gradient accumulation under `no_sync`), more compute per exchange (a
larger batch per rank), a faster path (NVLink, InfiniBand; fewer nodes).

Estimate: half the bytes take half the wire time; accumulation over two batches halves it too. The exposed wire time is the ceiling. Where
backward hides a part of the exchange, half of the whole comes off what is exposed. A loop that accumulates already, but exchanges after
each of its batches, need only do so after the last: then one such time is left, and caches stay warm.

Synchronised batch norm holds the ranks by collectives of its own. Where these are most of it, they are named, and what helps against
them (from 32 samples per rank on COM006 says that they are not needed).

False alarms: waiting for a straggler (COM002 names it). A slow rank beside a slow wire is the wire's reason only where it costs nearly as
much: what is counted here is without that waiting.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix, Saving
from rules.exchange import (
    compresses,
    exchange_s,
    exchanges_of,
    gradients_s,
    largest_model,
    norms_s,
    taken_from_computing,
    wrapped_at,
)
from rules.reading import model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the exposed time of one exchange among several in a step, what is left where it is the only one. Of 4 and 8 in a step at 1 and
# 3 Gb/s, three jobs: 0.93 to 1.01.
_ONCE = (0.8, 1.2)
# Times the exposed time, up to which the whole exchange is one stretch. Beyond, a part of it is waiting for the next bucket: with nine
# buckets beside a long backward pass it seemed to carry 0.16 GB/s, with one bucket after it 0.34 over the same wire.
_WHOLE = 2.0


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step = a.value("comm.wire_s"), a.value("step.time_s")
    level = severity(wire / step)
    if wire < t["wire"] * step or level is None:
        return Clear(RULE.id)
    by_norms = norms_s(a) > gradients_s(a)
    return Finding(
        rule=RULE.id,
        title="Synchronising batch norm holds the ranks layer by layer"
        if by_norms
        else "Exchanging gradients takes longer than the backward pass can hide",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=wire,
        evidence=_evidence(a, t),
        fixes=_FIXES_OF_NORMS if by_norms else _fixes(a),
        saving=_saving_of_norms(a) if by_norms else _saving(a),
    )


def _saving(a: Analysis) -> Saving:
    """Half the bytes of the gradients; batch norm's collectives stay as they are."""
    model, norms, wire, times = model_of(a), norms_s(a), gradients_s(a), exchanges_of(a)
    if times > 1:
        best, worst = (model.step_if({}, wire_s=norms + min(wire, share * wire / times)) for share in _ONCE)
        # what the backward pass hides is not free where the cores that compute send the bytes too
        beside_s = taken_from_computing(a) * (exchange_s(a) - wire) * (1 - 1 / times)
        return model.saving(model.at_best(best - beside_s), worst, f"one exchange in a step instead of {times}")
    half = max(0.0, wire - 0.5 * (a.get("comm.span_s") or wire))
    return model.saving(
        model.step_if({}, wire_s=norms + min(0.4 * wire, half)),
        model.step_if({}, wire_s=norms + 0.6 * wire),
        "half the exchanges: gradients of two batches at once" if compresses(a) else "half the bytes on the wire",
    )


def _saving_of_norms(a: Analysis) -> Saving:
    model, norms, rest = model_of(a), norms_s(a), gradients_s(a)
    best, worst = (model.step_if({}, wire_s=rest + share * norms) for share in (0.0, 0.5))
    return model.saving(best, worst, "no collectives of batch norm, or half of them")


def _evidence(a: Analysis, t: Thresholds) -> tuple[Evidence, ...]:
    wire, step, norms = a.value("comm.wire_s"), a.value("step.time_s"), norms_s(a)
    size, rate = a.get("comm.megabytes"), a.get("comm.bus_gb_per_s")
    found = [Evidence("comm.wire_s", wire, "s", t["wire"] * step, f"{100 * wire / step:.0f} % of the step, {_when(a)}")]
    if norms > 0:
        note = f"{100 * norms / step:.0f} % of the step of it in collectives of synchronised batch norm"
        found.append(Evidence("collectives.norm_s", norms, "s", None, note))
    if size:
        # a rate over the time of other collectives would be nobody's
        idle = "at least " if (a.get("comm.span_s") or 0.0) > _WHOLE * wire else ""
        carried = f"; {idle}{rate:.2g} GB/s over each link" if rate and norms < gradients_s(a) else ""
        note = f"of gradients per step{carried}"
        found.append(Evidence("comm.megabytes", size, "MB", None, note))
    return tuple(found)


def _when(a: Analysis) -> str:
    if norms_s(a) > gradients_s(a):
        return "in collectives that all ranks wait for"
    return "in collectives called from Python" if _by_python(a) else "after the last gradient"


def _by_python(a: Analysis) -> bool:
    """No DDP stamps its collectives: what was timed are calls of the job's own."""
    return largest_model(a) is None and bool(a.by_rank("collectives.held_s"))


_FIXES_OF_NORMS = (
    Fix(
        "batches per rank that need no other rank's statistics: larger ones, or GroupNorm",
        "plain BatchNorm from 32 samples per rank on, GroupNorm below",
        None,
        "small change",
    ),
    Fix(
        "a faster path between the ranks: these are many small messages, one after the other",
        "",
        None,
        "outside the code",
    ),
)


def _fixes(a: Analysis) -> tuple[Fix, ...]:
    """Half the bytes first, where they are not halved already: one line, and the batch stays what it is."""
    hook = (
        "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)"
    )
    halve = Fix("halve the bytes: register a bf16 compression hook", hook, wrapped_at(a), "one line")
    if _by_python(a):
        halve = Fix(
            "halve the bytes: exchange in bfloat16", "tensor.bfloat16() into the collective", None, "small change"
        )
    rarely = Fix("exchange less often: accumulate gradients under model.no_sync()", "", None, "small change")
    if exchanges_of(a) > 1:
        once = "with model.no_sync(): loss.backward()  # in all but the last of these batches"
        rarely = Fix(
            f"exchange once a step, not after each of its {exchanges_of(a)} batches", once, None, "small change"
        )
    faster = Fix("a larger batch per rank, or a faster path between the ranks", "", None, "outside the code")
    if compresses(a):
        return rarely, faster
    return (rarely, halve, faster) if exchanges_of(a) > 1 else (halve, rarely, faster)


RULE = rule(
    __name__,
    "the wire limits the step",
    check,
    needs=("step.time_s", "comm.wire_s"),
    thresholds={
        "wire": Threshold(
            0.15, "two gloo ranks of one machine exchange a ResNet's gradients in 2-13 % of a step with nothing wrong"
        )
    },
)
