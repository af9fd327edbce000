"""A deep window in the run's time: kernels and copies by stream, CUDA calls and operators by thread, as torch's profiler saw them.

The window's marks and the run's steps are the same moments on two clocks. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span, Trace, operators_behind
from rn50_advisor.advisor.analysis.kernels.kernel_names import kernel_class, short_name
from rn50_advisor.advisor.model.gpu.kernel_classes import CLASS_TITLES
from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, Track, inside_each_other, lanes

EVENTS_MAX = 100_000  # of a window: two steps of ResNet-50 on one GPU have some 15,000
_LIST_SHOWN = 300  # characters
_COLLECTIVE = {
    "Collective name": "op",
    "In msg nelems": "elements",
    "dtype": "type",
    "Process Group Name": "group",
    "Group size": "ranks",
    "Seq": "number",
}


@dataclass(frozen=True, slots=True)
class DeepTrace:
    """A rank's deep window. Its marks are the starts of `first_step` and the steps after it."""

    trace: Trace
    first_step: int


def add_window(book: TraceBook, pid: int, window: DeepTrace, steps: Table | None, rank: int) -> None:
    """Adds the threads of a window below those of its rank."""
    trace = window.trace
    ahead_ns = clock_ahead_ns(trace.marks, window.first_step, steps)
    if ahead_ns is None:
        book.left_out.append(f"rank {rank}: the deep window's kernels, since none of its steps is in the run")
        return
    begin, end = (trace.marks[0], trace.marks[-1])
    kept = [_within(spans, begin, end) for spans in (trace.kernels, trace.copies, trace.calls, trace.operators)]
    total = sum(map(len, kept))
    if total > EVENTS_MAX:
        until = sorted(span.start for spans in kept for span in spans)[EVENTS_MAX]
        kept = [[span for span in spans if span.start < until] for spans in kept]
        book.left_out.append(f"rank {rank}: {total - EVENTS_MAX:,} of {total:,} events at the end of its deep window")
    kernels, copies, calls, operators = kept
    behind = operators_behind(trace)
    for stream, spans in _by_thread([*kernels, *copies]):
        _add_lanes(book, pid, f"deep window: GPU {stream.replace('/', ', stream ')}", spans, (ahead_ns, behind))
    for thread, spans in _by_thread([*operators, *calls]):
        track = book.thread(pid, f"deep window: host thread {thread.rpartition('/')[2]}")
        times = inside_each_other(_ns(span, ahead_ns) for span in spans)
        for span, place in zip(spans, times, strict=True):
            book.slice(track, span.name, place, "operator", _operator_args(span))


def clock_ahead_ns(marks: Sequence[float], first_step: int, steps: Table | None) -> int | None:
    """What is to be added to the window's times: the median over the steps that began at its marks. None: the run has none of them.

    The profiler takes long to start in the first of them, after its start: that one counts only if there is no other.
    """
    if steps is None:
        return None
    starts = {int(row["step"]): int(row["t_start_ns"]) for row in steps if int(row["count"]) == 1}
    ahead = [
        starts[first_step + place] - round(mark * 1000)
        for place, mark in enumerate(marks)
        if first_step + place in starts
    ]
    if len(ahead) > 1 and first_step in starts:
        ahead = ahead[1:]
    return round(median(ahead)) if ahead else None


def _within(spans: Iterable[Span], begin_us: float, end_us: float) -> list[Span]:
    """The spans of whole steps: before and after them the profiler starts and stops. Kernels may end after the last step."""
    return [span for span in spans if begin_us <= span.start < end_us]


def _ns(span: Span, ahead_ns: int) -> tuple[int, int]:
    return round(span.start * 1000) + ahead_ns, round(span.end * 1000) + ahead_ns


def _by_thread(spans: Iterable[Span]) -> list[tuple[str, list[Span]]]:
    found: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        found.setdefault(span.thread, []).append(span)
    return sorted(found.items())


def _add_lanes(book: TraceBook, pid: int, name: str, spans: Sequence[Span], known: tuple[int, dict[int, Span]]) -> None:
    ahead_ns, behind = known
    times = [_ns(span, ahead_ns) for span in spans]
    chosen = lanes(times)
    tracks: list[Track] = [
        book.thread(pid, name if lane == 0 else f"{name} ({lane + 1})") for lane in range(max(chosen, default=-1) + 1)
    ]
    for span, lane, place in zip(spans, chosen, times, strict=True):
        operator = behind.get(span.external)
        book.slice(tracks[lane], short_name(span.name), place, "kernel", _kernel_args(span, operator))


def _kernel_args(span: Span, operator: Span | None) -> dict[str, Any]:
    kind = kernel_class(span.name, operator.name if operator else "")
    args: dict[str, Any] = {"kernel": span.name, "class": CLASS_TITLES.get(kind, kind)}
    if operator is not None:
        args["operator"] = operator.name
    if "bytes" in span.args:
        args["bytes"] = span.args.get("bytes")
    return args | {words: span.args.get(name) for name, words in _COLLECTIVE.items() if name in span.args}


def _operator_args(span: Span) -> dict[str, Any]:
    dims = span.args.get("Input Dims")
    return {"input sizes": str(dims)[:_LIST_SHOWN]} if dims else {}
