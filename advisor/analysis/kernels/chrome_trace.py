"""Reads a Chrome trace as torch's profiler (Kineto) writes it, and separates GPU activity from host activity.

The format follows pytorch/kineto's `output_json.cpp` and torch's own `profiler/_chrome_trace_export.py`: complete
events (`ph` X) with `ts` and `dur` in microseconds, distinguished by `cat`. Events of another shape are skipped.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# The recorder's mark for the start of a step.
STEP_MARK = "rn50-advisor step"
# Category names in traces written before 2022.
_CATEGORIES = {"operator": "cpu_op", "runtime": "cuda_runtime", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_HOST = ("cpu_op", "user_annotation")
_CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver")


class Span(NamedTuple):
    """A trace event; times in microseconds. `external` identifies its operator, `correlation` the call that launched it; 0 if unknown."""

    name: str
    start: float
    end: float
    thread: str
    external: int
    correlation: int
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of a trace, each list sorted by start. `calls` are calls of the CUDA runtime and driver; `operators` include annotations.

    `frames` are calls of Python functions, in traces with stacks.
    """

    kernels: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)
    calls: list[Span] = field(default_factory=list)
    operators: list[Span] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)  # starts of steps, and the end of the last one
    hardware: str = ""
    frames: list[Span] = field(default_factory=list)
    device: Any = None  # number of the GPU; None: unknown

    @property
    def on_gpu(self) -> bool:
        return bool(self.kernels)


def read_trace(document: Mapping[str, Any]) -> Trace:
    """The trace of the busiest GPU, if the process used several. Raises ValueError if the document is no trace."""
    events = document.get("traceEvents")
    if not isinstance(events, list):
        raise ValueError("no traceEvents in it")
    return sorted_trace(_spans(events), document.get("deviceProperties"))


def sorted_trace(spans: Iterable[tuple[str, Span]], devices: Any = None) -> Trace:
    """The trace of these (category, event) pairs, of the busiest GPU. `devices` is Kineto's list of device properties."""
    kernels: dict[Any, list[Span]] = {}
    copies: dict[Any, list[Span]] = {}
    calls, operators, frames, marks = [], [], [], []
    for category, span in spans:
        kind = category.lower()
        kind = _CATEGORIES.get(kind, kind)
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            place = kernels if kind == "kernel" else copies
            place.setdefault(span.args.get("device", span.thread.partition("/")[0]), []).append(span)
        elif kind in _CALLS:
            calls.append(span)
        elif kind == "python_function":
            frames.append(span)
        elif span.name == STEP_MARK:
            marks.append(span.start)
        elif kind in _HOST:
            operators.append(span)
    device = max(kernels, key=lambda key: sum(s.end - s.start for s in kernels[key]), default=None)
    return Trace(
        _ordered(kernels.get(device, ())),
        _ordered(copies.get(device, ())),
        _ordered(calls),
        _ordered(operators),
        sorted(marks),
        _hardware(devices, device) if kernels else "",
        _ordered(frames),
        device,
    )


def _spans(events: Iterable[Any]) -> Iterator[tuple[str, Span]]:
    for event in events:
        if isinstance(event, Mapping) and event.get("ph") == "X":
            span = _span(event)
            if span is not None:
                yield str(event.get("cat", "")), span


def _ordered(spans: Iterable[Span]) -> list[Span]:
    """Sorts spans by start. Of those that start together, the outer one comes first."""
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _span(event: Mapping[str, Any]) -> Span | None:
    args = event.get("args")
    args = args if isinstance(args, Mapping) else {}
    try:
        start, took = float(event["ts"]), float(event.get("dur", 0.0))
        external = int(args.get("External id", args.get("external id", 0)) or 0)
        correlation = int(args.get("correlation", 0) or 0)
    except (KeyError, TypeError, ValueError):
        return None
    thread = f"{event.get('pid')}/{event.get('tid')}"
    return Span(str(event.get("name", "")), start, start + max(took, 0.0), thread, external, correlation, args)


def _hardware(devices: Any, device: Any) -> str:
    for known in devices if isinstance(devices, list) else ():
        if isinstance(known, Mapping) and known.get("id") == device:
            return str(known.get("name", ""))[:80]
    return ""


def launches_of(trace: Trace) -> dict[int, Span]:
    """The calls that launched kernels, by correlation."""
    return {call.correlation: call for call in trace.calls if call.correlation}


def operators_behind(trace: Trace) -> dict[int, Span]:
    """The operators that launched kernels, by external id."""
    return {span.external: span for span in trace.operators if span.external}


_TO_DEVICE = re.compile(r"HtoD|HostToDevice")


def is_to_device(copy: Span) -> bool:
    """True for a copy from the host to the GPU; ROCm has names of its own."""
    return bool(_TO_DEVICE.search(copy.name))


Interval = tuple[float, float]


def union(spans: Iterable[Span | Interval]) -> list[Interval]:
    """The intervals covered by at least one of these, sorted; none touches the next."""
    found: list[Interval] = []
    for begin, end in sorted((span.start, span.end) if isinstance(span, Span) else span for span in spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def within(moment: float, intervals: list[Interval]) -> bool:
    """True if one of these intervals, as `union` makes them, contains the moment."""
    at = bisect_left(intervals, (moment, float("inf"))) - 1
    return at >= 0 and intervals[at][0] <= moment < intervals[at][1]


def common(ones: list[Interval], others: list[Interval]) -> list[Interval]:
    """The intersection of two lists of intervals, each as `union` makes them."""
    found, i = [], 0
    j = (
        max(0, bisect_left(others, (ones[0][0],)) - 1) if ones else 0
    )  # the ones may be a step, the others a whole trace
    while i < len(ones) and j < len(others):
        begin, end = max(ones[i][0], others[j][0]), min(ones[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if ones[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(ones: list[Interval], others: list[Interval]) -> list[Interval]:
    """The parts of `ones` that `others` leave uncovered; both as `union` makes them."""
    found, first = [], 0
    for begin, end in ones:
        at = begin
        while first < len(others) and others[first][1] <= begin:
            first += 1
        for place in range(first, len(others)):
            other_begin, other_end = others[place]
            if other_begin >= end:
                break
            if other_begin > at:
                found.append((at, other_begin))
            at = max(at, other_end)
        if at < end:
            found.append((at, end))
    return found
