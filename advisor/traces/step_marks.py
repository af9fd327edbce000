"""The marks of a traced training loop: the training thread's fetches, backward passes, optimizer steps, and steps of the profiler."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span, Trace
from rn50_advisor.advisor.analysis.kernels.kernel_names import is_fetch, operator_class

Kind = Literal["fetch", "backward", "optimizer"]
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)")
_UPDATE = re.compile(r"^Optimizer\.step")
_BACKWARD = re.compile(r"^(?:struct )?(?:autograd::engine|torch::autograd::)|Backward\d*$|^## backward ##$")


@dataclass(frozen=True, slots=True)
class StepMark:
    """A stretch of a step with a meaning; microseconds."""

    start: float
    end: float
    kind: Kind
    name: str


def training_thread(trace: Trace) -> str:
    """The thread that trains: it steps the profiler or the optimizer, or fetches batches; else the busiest one."""
    votes: Counter[str] = Counter()
    for span in trace.operators:
        if _PROFILER_STEP.match(span.name):
            votes[span.thread] += 1000
        elif _UPDATE.match(span.name):
            votes[span.thread] += 100
        elif is_fetch(span.name):
            votes[span.thread] += 10
    if not votes:
        for span in trace.operators:
            if not _BACKWARD.search(span.name):
                votes[span.thread] += 1
    return votes.most_common(1)[0][0] if votes else ""


def is_backward(name: str) -> bool:
    return bool(_BACKWARD.search(name))


def loop_marks(trace: Trace, thread: str) -> list[StepMark]:
    """Fetches, backward passes and optimizer steps, in order; none overlaps the next."""
    process = thread.partition("/")[0]
    outer: list[StepMark] = []
    backward: list[Span] = []
    for span in trace.operators:
        if _BACKWARD.search(span.name):
            if span.thread.partition("/")[0] == process:
                backward.append(span)
        elif span.thread == thread:
            kind: Kind | None = "fetch" if is_fetch(span.name) else "optimizer" if _UPDATE.match(span.name) else None
            if kind is not None and not (outer and span.start < outer[-1].end):
                outer.append(StepMark(span.start, span.end, kind, span.name))
    starts = [mark.start for mark in outer]
    passes = _passes(backward, starts)
    if not trace.on_gpu:
        passes = _with_waits(passes, starts, [span for span in trace.operators if operator_class(span.name) == "nccl"])
    return sorted([*outer, *passes], key=lambda mark: mark.start)


def _with_waits(passes: list[StepMark], starts: Sequence[float], collectives: Sequence[Span]) -> list[StepMark]:
    """Backward passes on a CPU with the time in which they wait for collectives after their last operator."""
    found, ends = [], [*starts, float("inf")]
    for one in passes:
        until = ends[bisect_right(starts, one.start)]
        waits = (span.end for span in collectives if one.start <= span.start < until)
        found.append(replace(one, end=min(until, max([one.end, *waits]))))
    return found


def _passes(operators: Iterable[Span], starts: Sequence[float]) -> list[StepMark]:
    """Backward passes: from the first backward operator between two other marks to the last."""
    found: dict[int, tuple[float, float]] = {}
    for span in operators:
        place = bisect_right(starts, span.start)
        begin, end = found.get(place, (span.start, span.end))
        found[place] = min(begin, span.start), max(end, span.end)
    limits = [*starts, float("inf")]
    return [StepMark(begin, min(end, limits[place]), "backward", "") for place, (begin, end) in found.items()]


def profiler_steps(trace: Trace, thread: str) -> list[tuple[int, Span]]:
    found = [
        (int(match[1]), span)
        for span in trace.operators
        if span.thread == thread and (match := _PROFILER_STEP.match(span.name))
    ]
    return found
