"""Communication does not overlap with the backward pass.

What it does: finds gradients that are exchanged only after the backward pass although the exchange is short enough to run beside it.

Why it is slow: DDP sends a bucket of gradients as soon as it is full, while the backward pass works on the next ones. Where nearly all
gradients lie in one bucket, or the script averages them by hand after `backward()`, the exchange begins when there is nothing left to
compute. So it does where the bucket that is sent first holds a gradient that comes late: DDP sends them in one order, sorts them anew after
the first step, and with `find_unused_parameters=True` it does not.

Evidence: exposed communication of the last rank, how little of the exchange the backward pass hides, the size of the largest bucket and
the options (from DDP's log) or the calls to all_reduce between backward and optimizer.

Fix: `bucket_cap_mb` so that there are six buckets or so, at the line that wraps the model; DistributedDataParallel instead of averaging by
hand. Of several buckets that wait: `find_unused_parameters=False`, or `static_graph=True` where parameters are unused indeed.

Estimate: with k equal buckets the exchange of the last one is left over, so a k-th of what it takes now is the best; two thirds of it the
worst, as the largest gradient may be the last, and on CPUs an exchange takes time from the computing beside it: at best none, as what it
burns while it is waited for is mostly polling.

False alarms: an exchange that takes longer than the backward pass stays exposed whatever the buckets (COM001, COM010). A model smaller than
DDP's default bucket has one bucket by nature: the wire, if it costs much, is then the cause. Several buckets that come late for no reason
that is seen may be the model's nature: large layers at its begin; so is a bucket far beyond its limit: one parameter that no limit splits.
Where the ranks' threads fill the cores, what an exchange takes of them is taken from computing, hidden or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import (
    DEFAULT_BUCKET_BYTES,
    computing_s,
    exchange_s,
    gradients_s,
    largest_model,
    norms_s,
    taken_from_computing,
    wrapped_at,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_BUCKETS = 6  # the last of them is left over; many more pay for each message's latency
# What an exchange burns is known of when it is waited for: where that was 0.34 to 0.49 of its length, the backward passes of four jobs grew
# by 0, 0.06, 0.18 and 0.69 of it once it ran beside them.
_TAKEN_AT_BEST = 0.0
_WORST = 0.65  # of the exposed time that remains: a large first layer has its gradient last
_BEYOND = 2.0  # times its limit a bucket holds one parameter that is as large as that


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    wire, step, whole = gradients_s(a), a.value("step.time_s"), exchange_s(a)
    backward, level = computing_s(a, "backward"), severity(wire / step)
    hidden = (whole - wire) / max(whole, 1e-9)
    if wire < t["wire"] * step or level is None or whole > t["room"] * backward or hidden > t["hidden"]:
        return Clear(RULE.id)
    wrapped = largest_model(a)
    by_hand = (a.get("collectives.by_hand_s") or 0.0) >= t["by_hand"] * wire and _own_calls(a)
    if wrapped is None and not by_hand:
        return Clear(RULE.id)
    bucket = a.get("comm.largest_bucket")
    if wrapped is not None and bucket is None:
        return NotMeasured(RULE.id, ("comm.largest_bucket",))
    several = wrapped is not None and (bucket or 0.0) < t["bucket"]
    fix = _fix_of_order(a, wrapped or {}) if several else _fix(a)
    if fix is None or not (several or _splits(wrapped or {})):
        return Clear(RULE.id)
    parts = max(a.get("comm.buckets") or 1.0, 1.0) if several else _BUCKETS
    expected, worst = (_with_left(a, left_s, taken_from_computing(a)) for left_s in (whole / parts, _WORST * wire))
    if severity((step - expected) / step) is None:
        # the cores that would carry the exchange beside the backward pass are what it computes on
        return Clear(RULE.id)
    best = _with_left(a, whole / parts, _TAKEN_AT_BEST)
    chosen = wrapped is None or several or float(wrapped.get("bucket_cap_bytes") or 0) > DEFAULT_BUCKET_BYTES
    model, consequences = model_of(a), ("COM001", "COM010")
    exposed = Evidence(
        "comm.wire_s",
        wire,
        "s",
        t["wire"] * step,
        f"{100 * wire / step:.0f} % of the step; {100 * hidden:.0f} % of the exchange runs beside the backward pass",
    )
    room = Evidence(
        "backward", backward, "s", None, f"the exchange takes {1000 * whole:.0f} ms: it would fit beside it"
    )
    return Finding(
        rule=RULE.id,
        title="Gradients are averaged after the backward pass, not beside it"
        if wrapped is None
        else "Gradients are exchanged only when the backward pass is over",
        severity=level,
        confidence=confidence(a, cap=0.7 if several else 0.9),
        seconds_per_step=wire,
        evidence=(exposed, room, _bucket_evidence(a, bucket, None if several else t["bucket"])),
        fixes=(fix,),
        saving=model.saving(best, worst, f"{parts:.0f} buckets, of which the last is left over"),
        explains=consequences if chosen else (),
        causes=() if chosen else consequences[:1],
    )


def _with_left(a: Analysis, left_s: float, taken: float) -> float:
    """The step with so much of the exchange left over: the rest runs beside the backward pass, and slows it by this part of its length."""
    model, hidden_s = model_of(a), max(0.0, gradients_s(a) - left_s)
    slower_s = taken * hidden_s
    changes = {(rank, "backward"): own["backward"] + slower_s for rank, own in model.own.items()}
    return model.step_if(changes, wire_s=norms_s(a) + left_s)


def _own_calls(a: Analysis) -> bool:
    """The job's own code calls them, no library that would not let it (DeepSpeed averages after the backward pass too)."""
    found = [s for facts in a.facts.values() if isinstance(facts, Mapping) for s in facts.get("collectives") or ()]
    total = sum(float(site.get("ns") or 0) for site in found)
    own = sum(float(site.get("ns") or 0) for site in found if not site.get("library"))
    return total == 0 or own >= 0.5 * total


def _where(a: Analysis) -> Where | None:
    """The job's line that calls most of them."""
    found = [s for facts in a.facts.values() if isinstance(facts, Mapping) for s in facts.get("collectives") or ()]
    own = [site for site in found if not site.get("library") and site.get("file")]
    most = max(own, key=lambda site: float(site.get("ns") or 0), default=None)
    return Where(str(most["file"]), int(most["line"])) if most else None


def _bucket_evidence(a: Analysis, bucket: float | None, threshold: float | None) -> Evidence:
    if bucket is None:
        calls = sum(a.by_rank("collectives.calls").values()) / max(len(a.by_rank("collectives.calls")), 1)
        return Evidence("collectives.calls", calls, "calls", None, "from Python in a step, after backward")
    note = f"of the gradients lie in one of {a.get('comm.buckets') or 1:.0f} buckets"
    return Evidence("comm.largest_bucket", bucket, "", threshold, f"{100 * bucket:.0f} % {note}")


def _fix(a: Analysis) -> Fix:
    calls = a.by_rank("collectives.megabytes")
    megabytes = a.get("comm.megabytes") or max(calls.values(), default=0.0)
    cap = f"bucket_cap_mb={max(1, math.floor(megabytes / _BUCKETS))}"
    if largest_model(a) is None:
        return Fix(
            "wrap the model in DistributedDataParallel and drop the loop that averages gradients",
            f"model = torch.nn.parallel.DistributedDataParallel(model, {cap})",
            _where(a),
            "small change",
        )
    title = f"{cap}: gradients leave in about {_BUCKETS} parts"
    return Fix(title, f"DistributedDataParallel(..., {cap})", wrapped_at(a), "one line")


def _splits(wrapped: Mapping[str, Any]) -> bool:
    """No bucket is far beyond its limit: it would hold one parameter, or DDP had not made its buckets yet when it was asked."""
    limit = float(wrapped.get("bucket_cap_bytes") or 0)
    return not limit or max(map(float, wrapped.get("bucket_bytes") or ()), default=0.0) <= _BEYOND * limit


def _fix_of_order(a: Analysis, wrapped: Mapping[str, Any]) -> Fix | None:
    """Of several buckets, none of which leaves before the end. None: nothing is seen that would keep them."""
    if not wrapped.get("find_unused_parameters") or wrapped.get("static_graph"):
        return None
    option = "static_graph=True" if any(a.by_rank("ddp.with_unused").values()) else "find_unused_parameters=False"
    title = f"{option}: DDP sorts its buckets by the order in which gradients come, and sends the first ones early"
    return Fix(title, f"DistributedDataParallel(..., {option})", wrapped_at(a), "one line")


RULE = rule(
    __name__,
    "communication does not overlap",
    check,
    needs=("step.time_s", "comm.wire_s"),
    thresholds={
        "wire": Threshold(0.15, "as for COM001: two sound gloo ranks of one host were seen at 2-13 % of a step"),
        "room": Threshold(1.0, "of the backward pass: a longer exchange cannot be hidden by it"),
        "hidden": Threshold(0.25, "of the exchange; what overlaps more than that has more than one bucket at work"),
        "bucket": Threshold(0.8, "of the gradients in one bucket: nothing but the last fifth could leave before"),
        "by_hand": Threshold(0.8, "of the exposed time lies in calls between backward and optimizer"),
    },
)
