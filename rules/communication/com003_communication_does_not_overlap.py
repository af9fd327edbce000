"""Gradient exchange not overlapped with the backward pass.

What it does: finds gradients that are exchanged only after the backward pass although the exchange is short enough to
overlap with it.

Fires when: exposed communication, less two standard errors, is ≥ 15 % of the step although it could overlap with the backward
pass: one bucket, or averaging by hand.

Why it is slow: DDP sends a bucket of gradients as soon as it is full, while the backward pass computes the next ones.
If nearly all gradients are in one bucket, or the script averages them by hand after `backward()`, the exchange begins
when no computing remains to hide it. The same happens if the bucket that is sent first holds a gradient that is
computed late: DDP sends buckets in a fixed order. It rebuilds them after the first step, but not with
`find_unused_parameters=True`.

Evidence: exposed communication of the last rank; how little of the exchange the backward pass hides; the size of the
largest bucket and the options (from DDP's log), or the calls to all_reduce between backward and optimizer.

Fix: set `bucket_cap_mb` for about six buckets, at the line that wraps the model; use DistributedDataParallel instead of
averaging by hand. If several buckets wait, use `find_unused_parameters=False`, or `static_graph=True` if there really
are unused parameters.

Estimate: with k equal buckets the exchange of the last one remains exposed, so at best a k-th of today's exchange
remains. At worst two thirds of the exposed time remains, because the largest gradient may come last. On CPUs an
exchange also takes time from the computing that it overlaps with; at best it takes none, because the CPU time burnt
while waiting for it is mostly polling.

False alarms: an exchange longer than the backward pass stays exposed with any buckets (COM001, COM010). A model smaller
than DDP's default bucket naturally has one bucket: if the exchange costs much, the transfer itself is the cause.
Several buckets that are late for no visible reason may follow from the model, such as large first layers. So may a
bucket far beyond its limit: it holds one parameter that no limit splits. If the ranks' threads fill the cores,
the exchange takes time from computing whether it is hidden or not.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_CALLS,
    COMM_BUCKETS,
    COMM_LARGEST_BUCKET,
    COMM_WIRE_S,
    DDP_WITH_UNUSED,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.collective_documents import DdpFacts
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    DEFAULT_BUCKET_BYTES,
    averages_by_hand,
    computing_s,
    exchange_s,
    gradients_s,
    largest_model,
    megabytes_of,
    others_s,
    proven_s,
    taken_from_computing,
    wrapped_at,
    wrapping,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_BUCKETS_ADVISED = 6  # the last one stays exposed; many more would each pay a message's latency
# The CPU cost of an exchange was measured while the rank waits for it: 0.34 to 0.49 of its length. The backward passes of four such jobs
# grew by 0, 0.06, 0.18 and 0.69 of that cost once the exchange overlapped with them.
_TAKEN_AT_BEST = 0.0
_EXPOSED_LEFT_MAX = 0.65  # of the exposed time that remains: a large first layer has its gradient last
_BUCKET_LIMIT_RATIO = 2.0  # times its limit: such a bucket holds a single parameter of that size


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wire, step, whole = gradients_s(a), a.value(STEP_TIME_S), exchange_s(a)
    backward, level = computing_s(a, "backward"), severity(wire / step)
    hidden = (whole - wire) / max(whole, 1e-9)
    if proven_s(a, wire) < t["wire"] * step or level is None or whole > t["room"] * backward or hidden > t["hidden"]:
        return Clear(RULE.id)
    wrapped = largest_model(a)
    if wrapped is None and not averages_by_hand(a, t["by_hand"]):
        return Clear(RULE.id)
    bucket = a.get(COMM_LARGEST_BUCKET)
    if wrapped is not None and bucket is None:
        return NotMeasured(RULE.id, (COMM_LARGEST_BUCKET,))
    several = wrapped is not None and (bucket or 0.0) < t["bucket"]
    fix = _fix_of_order(a, wrapped or {}) if several else _fix(a)
    if fix is None or not (several or _splits(wrapped or {})):
        return Clear(RULE.id)
    parts = max(a.get(COMM_BUCKETS) or 1.0, 1.0) if several else _BUCKETS_ADVISED
    expected, worst = (
        _with_left(a, left_s, taken_from_computing(a)) for left_s in (whole / parts, _EXPOSED_LEFT_MAX * wire)
    )
    if severity((step - expected) / step) is None:
        # the backward pass needs the cores that would carry the overlapping exchange
        return Clear(RULE.id)
    best = _with_left(a, whole / parts, _TAKEN_AT_BEST)
    chosen = wrapped is None or several or float(wrapped.get("bucket_cap_bytes") or 0) > DEFAULT_BUCKET_BYTES
    exposed = Evidence.of(
        COMM_WIRE_S,
        wire,
        t["wire"] * step,
        f"{100 * wire / step:.0f} % of the step; {100 * hidden:.0f} % of the exchange overlaps with the backward pass",
    )
    fits = Evidence("backward", backward, "s", None, f"the exchange takes {duration(whole)} and could overlap with it")
    return Finding(
        rule=RULE.id,
        title="Gradient averaging after the backward pass, without overlap"
        if wrapped is None
        else "Gradient exchange not overlapped with the backward pass",
        severity=level,
        confidence=confidence(a, cap=0.7 if several else 0.9),
        seconds_per_step=wire,
        evidence=(exposed, fits, _bucket_evidence(a, bucket, None if several else t["bucket"])),
        fixes=(fix,),
        saving=model_of(a).saving(best, worst, f"{parts:.0f} buckets, of which only the last stays exposed"),
        circumstances=frozenset({"held by settings"} if chosen else ()),
    )


def _with_left(a: Analysis, left_s: float, taken: float) -> float:
    """The step if `left_s` stays exposed: the rest overlaps with the backward pass and slows it by the share `taken` of its length."""
    model, hidden_s = model_of(a), max(0.0, gradients_s(a) - left_s)
    slower_s = taken * hidden_s
    changes = {(rank, "backward"): own["backward"] + slower_s for rank, own in model.own.items()}
    return model.step_if(changes, wire_s=others_s(a) + left_s)


def _bucket_evidence(a: Analysis, bucket: float | None, threshold: float | None) -> Evidence:
    if bucket is None:
        calls = sum(a.by_rank(COLLECTIVES_CALLS).values()) / max(len(a.by_rank(COLLECTIVES_CALLS)), 1)
        return Evidence.of(COLLECTIVES_CALLS, calls, note="from Python in a step, after backward", form="explains")
    note = f"of the gradients lie in one of {a.get(COMM_BUCKETS) or 1:.0f} buckets"
    return Evidence.of(COMM_LARGEST_BUCKET, bucket, threshold, f"{100 * bucket:.0f} % {note}")


def _fix(a: Analysis) -> Fix:
    cap_mb = max(1, math.floor(megabytes_of(a) / _BUCKETS_ADVISED))
    if largest_model(a) is None:
        return wrapping(a, cap_mb)
    title = f"bucket_cap_mb={cap_mb}: gradients are sent in about {_BUCKETS_ADVISED} parts"
    return Fix.of(title, CallChange.of("DistributedDataParallel", bucket_cap_mb=cap_mb), wrapped_at(a), "one line")


def _splits(wrapped: DdpFacts) -> bool:
    """No bucket is far beyond its limit: such a bucket holds one parameter, or DDP had not rebuilt its buckets when they were read."""
    limit = float(wrapped.get("bucket_cap_bytes") or 0)
    return not limit or max(map(float, wrapped.get("bucket_bytes") or ()), default=0.0) <= _BUCKET_LIMIT_RATIO * limit


def _fix_of_order(a: Analysis, wrapped: DdpFacts) -> Fix | None:
    """The fix for several buckets of which none is sent before the end; None without a visible reason."""
    if not wrapped.get("find_unused_parameters") or wrapped.get("static_graph"):
        return None
    unused = any(a.by_rank(DDP_WITH_UNUSED).values())
    name, value = ("static_graph", True) if unused else ("find_unused_parameters", False)
    title = f"{name}={value}: DDP orders its buckets by gradient readiness and sends the first ones early"
    return Fix.of(title, CallChange("DistributedDataParallel", ((name, value),)), wrapped_at(a), "one line")


RULE = rule(
    __name__,
    "Gradient exchange not overlapped with the backward pass",
    check,
    needs=(STEP_TIME_S, COMM_WIRE_S),
    thresholds={
        "wire": Threshold(0.15, "as for COM001: two sound gloo ranks of one host took 2-13 % of a step"),
        "room": Threshold(1.0, "of the backward pass: a longer exchange cannot be hidden by it"),
        "hidden": Threshold(0.25, "of the exchange: if more of it overlaps, more than one bucket is active"),
        "bucket": Threshold(0.8, "of the gradients in one bucket: at most a fifth of them can be sent earlier"),
        "by_hand": Threshold(0.8, "of the exposed time lies in calls between backward and optimizer"),
    },
    traced=True,
)
