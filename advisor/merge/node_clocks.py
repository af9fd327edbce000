"""Aligns the monotonic clocks of two hosts: by gradient exchanges between ranks of both, else by wall clocks.

No rank finishes an all-reduce before every rank has joined, and none finishes long after. So a step's backward ends at the same moment on
both hosts, apart from the exchange itself and the delay until the host notices it. The differences over many steps give the offset, the
drift (crystals differ by up to 100 ppm, a third of a second in an hour) and the uncertainty of both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.host_memory import slope
from rn50_advisor.advisor.analysis.steps.phases import after_last_gradient_ns
from rn50_advisor.advisor.model.recording import Clock, Recording, Series, Table
from rn50_advisor.probes.rank.layout import FLAG_TAIL

Numbers = NDArray[np.int64]

_LEAST_STEPS = 5
_FIRST_STEPS = 3  # hosts differ most in these, because of allocations and DDP's first buckets
# Over a shorter time the drift is smaller than the jitter of the steps' ends.
_DRIFT_FROM_NS = 120_000_000_000
_DRIFT_MOST = 500e-6  # no crystal drifts more, so a larger value is not drift
# Synchronised wall clocks differ by milliseconds, but nothing checks that they are synchronised.
_WALL_CLOCK_NS = 1_000_000_000
_AFTER_BACKWARD = ("clip_ns", "optimizer_ns", "gap_ns", "evaluation_ns", "checkpoint_ns")


def clock_of(other: Recording, first: Recording) -> Clock:
    """Returns the clock that converts the times of `other` to those of `first`."""
    return _by_collectives(other, first) or _by_wall_clock(other, first)


def to_first(clock: Clock, t_ns: Numbers) -> Numbers:
    if not clock.offset_ns and not clock.drift:
        return t_ns
    drifted = np.rint(clock.drift * (t_ns - clock.since_ns)).astype(np.int64) if clock.drift else 0
    return np.asarray(t_ns + clock.offset_ns + drifted, np.int64)


def _by_collectives(other: Recording, first: Recording) -> Clock | None:
    here, there = _exchange_ends(first), _exchange_ends(other)
    if here is None or there is None:
        return None
    shared, at_here, at_there = np.intersect1d(here[0], there[0], return_indices=True)
    if shared.size < _LEAST_STEPS + _FIRST_STEPS:
        return None
    t_ns = there[1][at_there][_FIRST_STEPS:]
    apart_ns = here[1][at_here][_FIRST_STEPS:] - t_ns
    since_ns = int(np.median(t_ns))
    base_ns = int(np.median(apart_ns))
    drift = _drift(t_ns, apart_ns - base_ns)
    left_ns = (apart_ns - base_ns) - drift * (t_ns - since_ns)
    offset_ns = base_ns + round(float(np.median(left_ns)))
    low, high = np.percentile(left_ns, (10, 90))
    uncertainty_ns = 0.5 * (high - low) + _exchange_ns(other, first) + _queued_ns(other, first)
    return Clock("collectives", offset_ns, drift, since_ns, round(float(uncertainty_ns)))


def _drift(t_ns: Numbers, apart_ns: Numbers) -> float:
    if int(t_ns.max() - t_ns.min()) < _DRIFT_FROM_NS:
        return 0.0
    found = slope(Series(t_ns, apart_ns.astype(np.float64))) / 1e9
    return found if abs(found) <= _DRIFT_MOST else 0.0


def _exchange_ends(recording: Recording) -> tuple[Numbers, Numbers] | None:
    """Returns (steps, ends of their backward) of the lowest rank with DDP times; None without: then no exchange links the hosts."""
    for rank in sorted(recording.comm):
        rows = recording.steps.get(rank)
        if rows is None or not recording.comm[rank].size:
            continue
        rows = rows[(rows["count"] == 1) & ((rows["flags"] & FLAG_TAIL) == 0)]
        _, unique = np.unique(rows["step"], return_index=True)
        rows = rows[unique]
        return rows["step"].astype(np.int64), rows["t_end_ns"] - sum(rows[name] for name in _AFTER_BACKWARD)
    return None


def _exchange_ns(other: Recording, first: Recording) -> float:
    """Returns how much later one host may finish an exchange: at most the shortest interval after the last gradient."""
    shortest = [
        float(np.median(left)) for r in (other, first) for table in r.comm.values() if (left := _left(table)).size
    ]
    return min(shortest, default=0.0)


def _left(comm: Table) -> Numbers:
    return np.maximum(0, after_last_gradient_ns(comm))


def _queued_ns(other: Recording, first: Recording) -> float:
    """Returns one step's length for a job on GPUs: there the host only queues the exchange in backward and may be a step ahead."""
    if not any(facts.get("cuda") for r in (other, first) for facts in r.facts.values()):
        return 0.0
    lengths = [float(np.median(t["t_end_ns"] - t["t_start_ns"])) for t in first.steps.values() if t.size]
    return max(lengths, default=0.0)


def _by_wall_clock(other: Recording, first: Recording) -> Clock:
    unix_ns = round((other.meta.started_unix_s - first.meta.started_unix_s) * 1e9)
    return Clock("wall clock", first.meta.started_ns + unix_ns - other.meta.started_ns, uncertainty_ns=_WALL_CLOCK_NS)
