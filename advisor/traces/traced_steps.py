"""Finds the steps of a trace, and the phases of each on the host's and on the GPU's timeline.

A step begins with the fetch of its batch, as the recorder's steps do. Without a loader it begins with `ProfilerStep#`, else after an
optimizer's step. Its phases follow from three kinds of marks: fetches, backward passes and optimizer steps. Without a loader, what comes
before the step's first work for the GPU belongs to the gap: it is the loop's own code, perhaps with the making of a batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Interval, Span, Trace, launches_of
from rn50_advisor.advisor.traces.step_marks import Kind, StepMark, loop_marks, profiler_steps, training_thread

Phase = Literal["input_wait", "forward", "backward", "clip", "optimizer", "gap"]
PHASES: tuple[Phase, ...] = ("input_wait", "forward", "backward", "clip", "optimizer", "gap")
_OF_PHASE: dict[Kind, Phase] = {"fetch": "input_wait", "backward": "backward", "optimizer": "optimizer"}
# The phase between two marks of a step, by the kinds of both. A missing one is the step's start or end.
_BETWEEN: dict[tuple[Kind | None, Kind | None], Phase] = {
    (None, "fetch"): "gap",
    ("backward", "optimizer"): "clip",
    ("backward", "fetch"): "clip",
    ("backward", None): "gap",
    ("optimizer", "fetch"): "gap",
    ("optimizer", "optimizer"): "clip",
    ("optimizer", None): "gap",
}
# A loader that yields a batch in fewer than this share of the profiler's steps does not feed each step.
_FED_SHARE_MIN = 0.5


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step: microseconds of each phase on the host and on the GPU's timeline, the latter empty on a CPU."""

    number: int
    start: float
    end: float
    fed: bool
    host: dict[Phase, float]
    gpu: dict[Phase, float] = field(default_factory=dict)
    gpu_parts: tuple[tuple[Phase, float, float], ...] = ()  # the phases' intervals on the GPU's timeline
    fetches: tuple[StepMark, ...] = ()
    backwards: tuple[Interval, ...] = ()
    updates: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class TracedSteps:
    """The whole steps of one rank. `thread` is the one that trains; `basis` says what marks the steps; `numbered`: ProfilerStep# does."""

    steps: tuple[TracedStep, ...]
    thread: str
    basis: str
    numbered: bool


def find_steps(trace: Trace) -> TracedSteps:
    """The whole steps of a trace, oldest first; none if nothing in it marks steps."""
    thread = training_thread(trace)
    marks = loop_marks(trace, thread)
    profiled = profiler_steps(trace, thread)
    bounds, basis = _bounds(marks, profiled)
    events = _GpuEvents(trace) if trace.on_gpu else None
    first = _number_at(profiled, bounds[0]) if bounds else 0
    queueing = _queueing(trace, thread) if trace.on_gpu else []
    steps = [
        _step(first + place, begin, end, _with_start(marks, begin, end, queueing), events)
        for place, (begin, end) in enumerate(pairwise(bounds))
    ]
    steps = _complete(steps)
    if len(steps) > 1 and (end := _usual_end(steps)) < steps[-1].end:
        last = steps[-1]
        marked = _with_start(marks, last.start, end, queueing)
        steps = [*steps[:-1], _step(last.number, last.start, end, marked, events)]
    return TracedSteps(tuple(steps), thread, basis, bool(profiled))


def within_step(spans: Sequence[Span], step: TracedStep, thread: str) -> Iterator[Span]:
    """The spans of one thread that begin in a step; `spans` are sorted by start."""
    first = bisect_right(spans, step.start, key=lambda span: span.start)
    for span in spans[first:]:
        if span.start >= step.end:
            return
        if span.thread == thread:
            yield span


def _bounds(marks: list[StepMark], profiled: list[tuple[int, Span]]) -> tuple[list[float], str]:
    """(the starts of the steps and the end of the last, what marks them)."""
    begin = profiled[0][1].start if profiled else float("-inf")
    end = profiled[-1][1].end if profiled else float("inf")
    inside = [mark for mark in marks if begin <= mark.start < end]
    updates = [mark for mark in inside if mark.kind == "optimizer"]
    fetches = _fetches_of_steps(inside, updates)
    last = end if profiled else max((mark.end for mark in updates or inside), default=begin)
    if fetches and len(fetches) >= _FED_SHARE_MIN * len(profiled) and (len(fetches) > 1 or profiled or updates):
        return [*(mark.start for mark in fetches), last], "the fetches of the DataLoader"
    if profiled:
        return [*(span.start for _, span in profiled), last], "ProfilerStep#"
    if len(updates) > 1:
        return [mark.end for mark in updates], "the optimizer's steps"
    return [], ""


def _fetches_of_steps(marks: list[StepMark], updates: list[StepMark]) -> list[StepMark]:
    """The fetch that begins each step: the first one, and the first after each update, or each backward pass if there is no update."""
    closing = "optimizer" if updates else "backward"
    found: list[StepMark] = []
    closed = True
    for mark in marks:
        if mark.kind == closing or (mark.kind != "fetch" and not found):
            closed = mark.kind == closing
        elif mark.kind == "fetch" and closed:
            found.append(mark)
            closed = not any(each.kind == closing for each in marks)
    return found


def _number_at(profiled: list[tuple[int, Span]], moment: float) -> int:
    return next((number for number, span in profiled if span.end > moment), 0)


def _complete(steps: list[TracedStep]) -> list[TracedStep]:
    """Without a first or last step that lacks the backward pass or the update of the others."""
    usual = steps[1:-1] or sorted(steps, key=lambda step: step.start - step.end)[:1]
    both: tuple[Phase, ...] = ("backward", "optimizer")
    needs = [phase for phase in both if all(step.host[phase] > 0 for step in usual)]

    def whole(step: TracedStep) -> bool:
        return step.end > step.start and all(step.host[phase] > 0 for phase in needs)

    while steps and not whole(steps[-1]):
        steps = steps[:-1]
    while steps and not whole(steps[0]):
        steps = steps[1:]
    return steps


def _usual_end(steps: list[TracedStep]) -> float:
    """The end of the last step if it spends as long after its update as the others: the profiler stops in it, and loops end there."""
    last = steps[-1]
    if not last.updates:
        return last.end
    after = [step.end - step.updates[-1][1] for step in steps[:-1] if step.updates]
    return last.updates[-1][1] + median(after) if after else last.end


def _step(number: int, begin: float, end: float, own: list[StepMark], events: _GpuEvents | None) -> TracedStep:
    parts = _parts(begin, end, own)
    host: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
    gpu: dict[Phase, float] = {}
    gpu_parts: list[tuple[Phase, float, float]] = []
    for phase, part_begin, part_end in parts:
        host[phase] += part_end - part_begin
    if events is not None:
        gpu = dict.fromkeys(PHASES, 0.0)
        for phase, part_begin, part_end in parts:
            gpu_parts.append((phase, events.at(part_begin), events.at(part_end)))
            gpu[phase] += gpu_parts[-1][2] - gpu_parts[-1][1]
    return TracedStep(
        number,
        begin,
        end,
        any(mark.kind == "fetch" for mark in own),
        host,
        gpu,
        tuple(gpu_parts),
        tuple(mark for mark in own if mark.kind == "fetch" and mark.name),
        tuple((mark.start, min(mark.end, end)) for mark in own if mark.kind == "backward"),
        tuple((mark.start, min(mark.end, end)) for mark in own if mark.kind == "optimizer"),
    )


def _queueing(trace: Trace, thread: str) -> list[float]:
    """When the training thread gave work to the GPU."""
    work = {span.correlation for span in (*trace.kernels, *trace.copies) if span.correlation}
    return [call.start for call in trace.calls if call.thread == thread and call.correlation in work]


def _with_start(marks: list[StepMark], begin: float, end: float, queueing: list[float]) -> list[StepMark]:
    """The marks of a step; without a fetch, an empty one where the step begins to work for the GPU stands for it."""
    own = _between(marks, begin, end)
    at = bisect_left(queueing, begin)
    if any(mark.kind == "fetch" for mark in own) or at == len(queueing) or queueing[at] >= end:
        return own
    if own and own[0].start <= queueing[at]:
        return own
    return [StepMark(queueing[at], queueing[at], "fetch", ""), *own]


def _between(marks: list[StepMark], begin: float, end: float) -> list[StepMark]:
    first = bisect_left(marks, begin, key=lambda mark: mark.start)
    return marks[first : bisect_left(marks, end, key=lambda mark: mark.start)]


def _parts(begin: float, end: float, marks: list[StepMark]) -> list[tuple[Phase, float, float]]:
    """The phases of a step in order; together they cover it."""
    parts: list[tuple[Phase, float, float]] = []
    at, before = begin, None
    for mark in marks:
        if mark.start > at:
            parts.append((_BETWEEN.get((before, mark.kind), "forward"), at, mark.start))
        start, at = max(at, mark.start), max(at, min(mark.end, end))
        parts.append((_OF_PHASE[mark.kind], start, at))
        before = mark.kind
    if end > at:
        parts.append((_BETWEEN.get((before, None), "forward"), at, end))
    return parts


class _GpuEvents:
    """When an event, had it been recorded on the stream at a moment of the host, would have passed: all work launched before is done."""

    def __init__(self, trace: Trace) -> None:
        launches = launches_of(trace)
        streams: Counter[object] = Counter()
        for kernel in trace.kernels:
            streams[kernel.args.get("stream", kernel.thread)] += 1
        main = streams.most_common(1)[0][0]
        copies = [copy for copy in trace.copies if copy.args.get("stream", copy.thread) == main]
        work = []
        for span in (*trace.kernels, *copies):
            call = launches.get(span.correlation)
            work.append((min(call.start, span.start) if call is not None else span.start, span.end))
        work.sort()
        self._launched = [launched for launched, _ in work]
        self._done = list(accumulate((done for _, done in work), max))

    def at(self, moment: float) -> float:
        place = bisect_left(self._launched, moment)
        return max(moment, self._done[place - 1]) if place else moment
