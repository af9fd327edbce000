"""The wire limits the step.

What it does: finds steps in which even the rank that arrives last still waits for its gradients to be exchanged.

Why it is slow: the all-reduce needs longer than the backward pass that hides it. Waiting for a straggler is not counted: of one and the
same collective the shortest duration is the wire, the rest is waiting for the last arrival.

Evidence: exposed communication of the last rank as a share of the step, from DistributedDataParallel's own stamps; gradient bytes; what
each link carried of them, against what the path between the ranks should.

Fix: fewer bytes (bf16 or fp16 compression hook), fewer exchanges (gradient accumulation under `no_sync`), more compute per exchange (a
larger batch per rank), a faster path (NVLink, InfiniBand; fewer nodes).

Estimate: half the bytes take half the wire time; accumulation over two batches halves it too. The exposed wire time is the ceiling. Where
backward hides a part of the exchange, half of the whole comes off what is exposed. A loop that accumulates already, but exchanges after
each of its batches, need only do so after the last: then one such time is left, and caches stay warm.

A faster path has numbers of its own where the bytes are known, by the ring, 2(N-1)/N of them over the new rate. Latencies and what gloo
does on CPUs for each byte do not shrink with the wire. Rates are what each link carries, not what is printed on the card; on one host whose
path is sound already there is none.

Synchronised batch norm holds the ranks by collectives of its own. Where these are most of it, they are named, and what helps against
them (from 32 samples per rank on COM006 says that they are not needed).

False alarms: waiting for a straggler (COM002 names it). A slow rank beside a slow wire is the wire's reason only where it costs nearly as
much: what is counted here is without that waiting.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Saving
from rn50_advisor.advisor.model.wording.quantities import seconds_range, speedup_range
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    carried_evidence,
    compresses,
    exchange_s,
    exchanges_of,
    gradients_s,
    largest_model,
    norms_s,
    on_faster_links,
    path_is_sound,
    several_hosts,
    taken_from_computing,
    wrapped_at,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the exposed time of one exchange among several in a step, what is left where it is the only one. Of 4 and 8 in a step at 1 and
# 3 Gb/s, three jobs: 0.93 to 1.01.
_ONCE = (0.8, 1.2)
# Of Ethernet cards, in Gbit/s. Those that links carry as much as already, and those that bring no more than the one before, are not named.
_RATES = (10.0, 25.0, 100.0)


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
    size, called = a.get("comm.megabytes"), max(a.by_rank("collectives.megabytes").values(), default=0.0)
    found = [Evidence("comm.wire_s", wire, "s", t["wire"] * step, f"{100 * wire / step:.0f} % of the step, {_when(a)}")]
    if norms > 0:
        note = f"{100 * norms / step:.0f} % of the step of it in collectives of synchronised batch norm"
        found.append(Evidence("collectives.norm_s", norms, "s", None, note))
    if size:
        found.append(Evidence("comm.megabytes", size, "MB", None, "of gradients per step"))
    elif called and _by_python(a):
        found.append(
            Evidence("collectives.megabytes", called, "MB", None, "per step in collectives called from Python")
        )
    # a rate over the time of other collectives would be nobody's
    return (*found, *(carried_evidence(a) if norms < gradients_s(a) else ()))


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
    larger = Fix(
        "a larger batch per rank: of twice the samples each pays half for the exchange", "", None, "small change"
    )
    paths = (*_faster(a), larger)
    if compresses(a):
        return rarely, *paths
    return (rarely, halve, *paths) if exchanges_of(a) > 1 else (halve, rarely, *paths)


def _faster(a: Analysis) -> tuple[Fix, ...]:
    """Nothing on one host whose path does what it can: its rate is that of memory and cores."""
    if path_is_sound(a) and not several_hosts(a):
        return ()
    told, spared_s = [], 0.0
    for gbit in _RATES:
        saving = on_faster_links(a, gbit / 8)
        middle_s = sum(saving.seconds_per_step) / 2 if saving else 0.0
        if saving and severity((middle_s - spared_s) / a.value("step.time_s")):
            spared_s = middle_s
            told.append(_told(a, gbit, saving))
    title = "a faster path between the ranks"
    return (Fix(f"{title}: {told[0]}" if told else title, "\n".join(told[1:]), None, "outside the code"),)


def _told(a: Analysis, gbit: float, saving: Saving) -> str:
    least, most = (a.value("step.time_s") - seconds for seconds in reversed(saving.seconds_per_step))
    return f"at {gbit:g} Gbit/s the step would take {seconds_range((least, most))} ({speedup_range(saving.speedup)})"


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
