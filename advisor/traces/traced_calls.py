"""Calls of a traced rank's training thread: those that wait for the GPU, copies to it, and what it runs between steps, with their lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rn50_advisor.advisor.analysis.kernels.chrome_trace import (
    Interval,
    Span,
    Trace,
    is_to_device,
    launches_of,
    length,
    union,
    without,
)
from rn50_advisor.advisor.analysis.kernels.idle_gaps import SYNC_CALL
from rn50_advisor.advisor.traces.python_stacks import PythonStacks, as_frames, as_user_line, users_line
from rn50_advisor.advisor.traces.traced_steps import TracedStep, TracedSteps, within_step
from rn50_advisor.probes.documents.event_documents import StackSample
from rn50_advisor.probes.documents.rank_documents import CopySite, WaitSite

_GAP_SAMPLES = 10  # in a step
_GAP_SAMPLED_US = 200.0  # a shorter time after the update is none that a rule speaks of
_PROFILER = "torch/profiler/"
_TO_HOST = re.compile(r"DtoH|DeviceToHost")
_WORDS = {
    "aten::item": "item",
    "aten::_local_scalar_dense": "item",
    "aten::is_nonzero": "__bool__",
    "aten::nonzero": "nonzero",
    "aten::masked_select": "masked_select",
    "aten::unique": "unique",
    "aten::to": "to",
    "aten::_to_copy": "to",
    "aten::copy_": "copy_",
    "aten::equal": "equal",
}


def waits(trace: Trace, found: TracedSteps, stacks: PythonStacks) -> list[WaitSite]:
    """Calls of the training thread that wait for the GPU, other than those that copy a batch to it."""
    sites, inside = _Sites(), _Enclosing(trace, found.thread)
    copying = {copy.correlation for copy in trace.copies if is_to_device(copy)} - {0}
    back = {copy.correlation for copy in trace.copies if _TO_HOST.search(copy.name)} - {0}
    for step in found.steps:
        for call in within_step(trace.calls, step, found.thread):
            held = SYNC_CALL.search(call.name) or call.correlation in back
            if not held or call.correlation in copying:
                continue
            operator = inside.outermost(call.start)
            if operator is not None and inside.holds_copy(operator, copying):
                continue
            name = (
                "synchronize" if operator is None else _WORDS.get(operator.name, operator.name.removeprefix("aten::"))
            )
            fixed = {"call": name, "phase": _phase_at(step, call.start), **_line_at(stacks, call.start)}
            took = call.end - call.start
            sites.add(fixed, step, took, took, 0.0)
    return [WaitSite(**row) for row in sites.rows.values()]  # type: ignore[typeddict-item]


def copies(trace: Trace, found: TracedSteps, stacks: PythonStacks) -> list[CopySite]:
    """Copies of the training thread to the GPU whose kind of memory is known."""
    sites, inside = _Sites(), _Enclosing(trace, found.thread)
    launches = launches_of(trace)
    main = _main_stream(trace)
    for copy in trace.copies:
        call = launches.get(copy.correlation)
        pinned = "Pinned" in copy.name
        if (
            call is None
            or call.thread != found.thread
            or not is_to_device(copy)
            or not (pinned or "Pageable" in copy.name)
        ):
            continue
        place = bisect_right(found.steps, call.start, key=lambda each: each.start) - 1
        if place < 0 or call.start >= found.steps[place].end:
            continue
        step = found.steps[place]
        waited = inside.waited_in(call)
        fixed = {
            "call": "to",
            "phase": _phase_at(step, call.start),
            "pinned": pinned,
            "non_blocking": pinned and not waited,
            "aside": copy.args.get("stream", copy.thread) != main,
            **_line_at(stacks, call.start),
        }
        size = copy.args.get("bytes")
        blocked = call.end - call.start + waited
        sites.add(fixed, step, blocked, copy.end - copy.start, size if isinstance(size, (int, float)) else 0)
    return [CopySite(**row) for row in sites.rows.values()]  # type: ignore[typeddict-item]


def _line_at(stacks: PythonStacks, moment: float) -> dict[str, Any]:
    """The user's line at a moment as a site's fields; none if the trace has no stacks, or knows of each function its first line alone."""
    line = users_line(stacks.at(moment))
    return {} if line is None or not line.exact else {"file": line.file, "line": line.line, "function": line.function}


def gap_samples(trace: Trace, found: TracedSteps, stacks: PythonStacks) -> list[tuple[float, StackSample]]:
    """Stack samples of the training thread after the update of each step, with their moments; none without stacks.

    While it waits for the GPU, it is not what takes the time.
    """
    samples = []
    held = union(c for c in trace.calls if c.thread == found.thread and SYNC_CALL.search(c.name))
    for step in found.steps:
        begin = step.updates[-1][1] if step.updates else step.end
        free = without([(begin, step.end)], held)
        if length(free) < _GAP_SAMPLED_US:
            continue
        for number in range(_GAP_SAMPLES):
            moment = _moment_in(free, length(free) * (number + 0.5) / _GAP_SAMPLES)
            stack = stacks.at(moment)
            user = users_line(stack)
            if user is None or any(frame.file.startswith(_PROFILER) for frame in stack):
                continue
            sample = StackSample(
                phase="gap",
                label=None,
                step=step.number + 1,
                phase_for_s=(moment - begin) / 1e6,
                frames=as_frames(stack),
                user=as_user_line(user),
            )
            samples.append((moment, sample))
    return samples


def _main_stream(trace: Trace) -> Any:
    taken: dict[Any, float] = defaultdict(float)
    for kernel in trace.kernels:
        taken[kernel.args.get("stream", kernel.thread)] += kernel.end - kernel.start
    return max(taken, key=lambda stream: taken[stream], default=None)


def _phase_at(step: TracedStep, moment: float) -> str:
    for mark in step.fetches:
        if mark.start <= moment < mark.end:
            return "input_wait"
    for begin, end in step.backwards:
        if begin <= moment < end:
            return "backward"
    for begin, end in step.updates:
        if begin <= moment < end:
            return "optimizer"
    if step.updates and moment >= step.updates[-1][1]:
        return "gap"
    return "clip" if step.backwards and moment >= step.backwards[-1][1] else "forward"


def _moment_in(intervals: list[Interval], passed: float) -> float:
    """The moment at which this much of the intervals has passed."""
    for begin, end in intervals:
        if passed <= end - begin:
            return begin + passed
        passed -= end - begin
    return intervals[-1][1]


class _Sites:
    """Sums over the calls of each site; a site is an operator at a line, in a phase."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._steps: dict[tuple[Any, ...], set[int]] = defaultdict(set)

    def add(self, fixed: Mapping[str, Any], step: TracedStep, blocked_us: float, least_us: float, size: float) -> None:
        key = tuple(sorted((name, str(value)) for name, value in fixed.items()))
        row = self.rows.setdefault(key, {**fixed, "count": 0, "blocked_ns": 0, "least_ns": 1 << 62, "bytes": 0})
        row["count"] += 1
        row["blocked_ns"] += round(1000 * blocked_us)
        row["least_ns"] = min(row["least_ns"], round(1000 * least_us))
        row["bytes"] += int(size)
        self._steps[key].add(step.number)
        row["looks"] = len(self._steps[key])


class _Enclosing:
    """The operators and calls of one thread by time."""

    def __init__(self, trace: Trace, thread: str) -> None:
        self._outer: list[Span] = []
        for span in trace.operators:
            nested = bool(self._outer) and span.start < self._outer[-1].end
            if span.thread == thread and span.name.startswith("aten::") and not nested:
                self._outer.append(span)
        self._calls = [call for call in trace.calls if call.thread == thread]

    def outermost(self, moment: float) -> Span | None:
        place = bisect_right(self._outer, moment, key=lambda span: span.start) - 1
        return self._outer[place] if place >= 0 and moment < self._outer[place].end else None

    def holds_copy(self, operator: Span, copying: set[int]) -> bool:
        return any(call.correlation in copying for call in self._inside(operator))

    def waited_in(self, call: Span) -> float:
        """Microseconds that the operator around a copy's call waits for the GPU after it."""
        operator = self.outermost(call.start)
        if operator is None:
            return 0.0
        held = [c for c in self._inside(operator) if c.start >= call.end and SYNC_CALL.search(c.name)]
        return sum(wait.end - wait.start for wait in held)

    def _inside(self, operator: Span) -> Iterator[Span]:
        first = bisect_right(self._calls, operator.start, key=lambda call: call.start)
        for place in range(first, len(self._calls)):
            call = self._calls[place]
            if call.start >= operator.end:
                return
            yield call
