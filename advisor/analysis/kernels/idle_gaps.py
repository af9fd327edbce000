"""Splits a GPU's idle time within a step by cause, from a trace: input, copies, a synchronisation, launches, or another stream.

Causes take their overlap with a gap between kernels in this order. First input: the host was fetching a batch. Then copies: a copy ran, or
the host was blocked in one (it stages pageable memory itself). The rest depends on the next kernel. If it was launched after the GPU ran
dry, it came too late. If the host had just returned from waiting for the GPU, that wait accounts for as much idle time as it blocked the
host, because the host would be that much further ahead without it. Launching accounts for the rest. A kernel launched before the gap waited
for another stream.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from rn50_advisor.advisor.analysis.kernels.chrome_trace import (
    Interval,
    Span,
    Trace,
    common,
    launches_of,
    length,
    union,
    without,
)
from rn50_advisor.advisor.analysis.kernels.kernel_names import is_fetch

SYNC_CALL = re.compile(
    r"Synchronize|^(?:cu(?:da)?|hip)Memcpy(?!.*Async)|^(?:cuda|hip)Free(?!Async)|^(?:cuda|hip)Malloc$"
)
_COPY_CALL = re.compile(r"^(?:cu(?:da)?|hip)Memcpy")
# A wait may end this long before a gap begins and still be its cause: the time of a few interrupts.
_RETURNS_WITHIN_US = 200.0
_WORTH_US = 0.5  # shorter gaps always occur between two kernels of one stream


def idle_by_cause(trace: Trace, begin: float, end: float) -> dict[str, float]:
    """Microseconds without a kernel between two moments, by cause. The causes add up to all idle time."""
    kernels = [span for span in trace.kernels if span.end > begin and span.start < end]
    gaps = without([(begin, end)], union(kernels))
    fetching = union(span for span in trace.operators if is_fetch(span.name))
    held = [span for span in trace.calls if _COPY_CALL.match(span.name) and _is_held(span)]
    copying = union([*trace.copies, *held])
    found = {"input": length(common(gaps, fetching))}
    rest = without(gaps, fetching)
    found["copy"] = length(common(rest, copying))
    found.update(sync=0.0, launch=0.0, other=0.0)
    launches = launches_of(trace)
    waits = [call for call in trace.calls if SYNC_CALL.search(call.name)]
    starts = [kernel.start for kernel in trace.kernels]
    for gap in without(rest, copying):
        for cause, us in _causes(gap, trace, launches, waits, starts):
            found[cause] += us
    return found


def _is_held(call: Span) -> bool:
    """True if a copy blocked the host. A call that only queues the copy takes a few microseconds."""
    return call.end - call.start > 20.0


def _causes(
    gap: Interval, trace: Trace, launches: dict[int, Span], waits: list[Span], starts: list[float]
) -> list[tuple[str, float]]:
    """The causes of an idle gap, each with its microseconds."""
    begin, end = gap
    us = end - begin
    if us < _WORTH_US:
        return [("other", us)]
    at = bisect_left(starts, end - 1e-6)
    call = launches.get(trace.kernels[at].correlation) if at < len(trace.kernels) else None
    if call is not None and call.end <= begin:
        return [("other", us)]
    last = bisect_right(waits, begin, key=lambda wait: wait.start) - 1
    if last < 0 or not begin - _RETURNS_WITHIN_US <= waits[last].end <= end:
        return [("launch", us)]
    held = min(us, waits[last].end - waits[last].start)
    return [("sync", held), ("launch", us - held)]
