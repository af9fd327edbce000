"""The wire limits the step.

What it does: finds steps in which even the rank that arrives last still waits for its gradients to be exchanged.

Why it is slow: the all-reduce needs longer than the backward pass that hides it. Waiting for a straggler is not counted: of one and the
same collective the shortest duration is the wire, the rest is waiting for the last arrival.

Evidence: exposed communication of the last rank as a share of the step, from DistributedDataParallel's own stamps; gradient bytes.

Fix: fewer bytes (bf16 or fp16 compression hook), fewer exchanges (gradient accumulation under `no_sync`), more compute per exchange (a
larger batch per rank), a faster path (NVLink, InfiniBand; fewer nodes).

Estimate: half the bytes take half the wire time; accumulation over two batches halves it too. The exposed wire time is the ceiling. Where
backward hides a part of the exchange, half of the whole comes off what is exposed.

False alarms: waiting for a straggler (COM002 names it).
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.exchange import compresses, largest_model, wrapped_at
from rules.reading import model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    wire, step = a.value("comm.wire_s"), a.value("step.time_s")
    level = severity(wire / step)
    if wire < t["wire"] * step or level is None:
        return Clear(RULE.id)
    model, size = model_of(a), a.get("comm.megabytes")
    half = max(0.0, wire - 0.5 * (a.get("comm.span_s") or wire))
    evidence = [
        Evidence(
            "comm.wire_s",
            wire,
            "s",
            t["wire"] * step,
            f"{100 * wire / step:.0f} % of the step, {_when(a)}",
        )
    ]
    if size:
        ranks = max(a.world_size, 2)
        rate = 2 * (ranks - 1) / ranks * size / 1000 / wire
        # ring all-reduce moves 2(N-1)/N of the bytes over each link
        evidence.append(
            Evidence("comm.megabytes", size, "MB", None, f"gradients per step; at least {rate:.2g} GB/s over each link")
        )
    return Finding(
        rule=RULE.id,
        title="Exchanging gradients takes longer than the backward pass can hide",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=wire,
        evidence=tuple(evidence),
        fixes=_fixes(a),
        saving=model.saving(
            model.step_if({}, wire_s=min(0.4 * wire, half)),
            model.step_if({}, wire_s=0.6 * wire),
            "half the exchanges: gradients of two batches at once" if compresses(a) else "half the bytes on the wire",
        ),
    )


def _when(a: Analysis) -> str:
    return "in collectives called from Python" if _by_python(a) else "after the last gradient"


def _by_python(a: Analysis) -> bool:
    """No DDP stamps its collectives: what was timed are calls of the job's own."""
    return largest_model(a) is None and bool(a.by_rank("collectives.held_s"))


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
    faster = Fix("a larger batch per rank, or a faster path between the ranks", "", None, "outside the code")
    return (rarely, faster) if compresses(a) else (halve, rarely, faster)


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
