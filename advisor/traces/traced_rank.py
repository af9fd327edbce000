"""Turns the trace of one rank into the tables and facts of a recording, and drops the trace, which is large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.gpu.host_pacing import BEHIND
from rn50_advisor.advisor.analysis.kernels.chrome_trace import (
    Interval,
    Span,
    Trace,
    common,
    launches_of,
    length,
    sorted_trace,
    union,
    without,
)
from rn50_advisor.advisor.analysis.kernels.kernel_names import kernel_class, operator_class
from rn50_advisor.advisor.analysis.kernels.kernel_windows import summary_of
from rn50_advisor.advisor.analysis.steps.steady_state import TRACED_START_ROWS
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.traces.python_stacks import PythonStacks
from rn50_advisor.advisor.traces.trace_content import Progress
from rn50_advisor.advisor.traces.trace_json import TraceFile
from rn50_advisor.advisor.traces.traced_calls import gap_samples
from rn50_advisor.advisor.traces.traced_facts import LOADER, batch_size, rank_facts
from rn50_advisor.advisor.traces.traced_steps import TracedStep, TracedSteps, find_steps
from rn50_advisor.probes.documents.event_documents import StackSample
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import COMM_FIELDS, FLAG_NO_LOADER, FLAG_TRACED, GPU_STEP_FIELDS, STEP_FIELDS

_US = 1000  # ns
_ON_DEVICE = re.compile(r"^(?:nccl|hccl|xccl):|cudnn|^c10d::\w+_cuda")


@dataclass(frozen=True, slots=True)
class TracedRank:
    """What one rank's trace shows. Times are nanoseconds of the rank's wall clock."""

    rank: int
    world_size: int
    host: str
    begin_ns: int
    end_ns: int
    facts: RankFacts
    window: DeepWindow | None
    steps: Table | None  # None: no whole step was found
    gpu_steps: Table | None
    comm: Table | None
    samples: tuple[tuple[int, StackSample], ...]  # of the Python stack between steps, with their times
    collectives: NDArray[np.int64]  # ends of the collectives on the GPU, in order
    numbered: bool  # ProfilerStep# gives the steps' numbers
    blind: bool  # the job works on a device whose activity is not in the trace


def traced_rank(file: TraceFile, rank: int, world_size: int, progress: Progress = lambda share: None) -> TracedRank:
    """Reads one rank. Empties the file's list of events."""
    trace = sorted_trace(file.spans, file.devices)
    file.spans.clear()
    progress(0.2)
    found = find_steps(trace)
    progress(0.5)
    window = _window(trace, found, rank)
    progress(0.8)

    stacks = PythonStacks(trace, found.thread)
    facts = rank_facts(trace, found, window, file.devices, stacks)
    everything = (trace.operators, trace.kernels, trace.calls, trace.copies, trace.frames)
    begin = min((spans[0].start for spans in everything if spans), default=0.0)
    end = max((span.end for spans in everything for span in spans), default=0.0)
    to_ns = _Clock(file.base_ns)
    blind = not trace.on_gpu and (bool(trace.calls) or any(_ON_DEVICE.search(span.name) for span in trace.operators))
    exchange = [kernel for kernel in trace.kernels if kernel_class(kernel.name) == "nccl"]
    steps = found.steps
    return TracedRank(
        rank=rank,
        world_size=world_size,
        host=file.host,
        begin_ns=to_ns(steps[0].start if steps else begin),
        end_ns=to_ns(steps[-1].end if steps else end),
        facts=facts,
        window=window,
        steps=_step_table(trace, found, to_ns, blind=blind) if steps else None,
        gpu_steps=_gpu_table(trace, steps) if steps and trace.on_gpu else None,
        comm=_comm_table(trace, steps, to_ns) if steps else None,
        samples=tuple((to_ns(moment), sample) for moment, sample in gap_samples(trace, found, stacks)),
        collectives=np.array([to_ns(kernel.end) for kernel in exchange], np.int64),
        numbered=found.numbered,
        blind=blind,
    )


def of_rank(one: TracedRank, rank: int) -> TracedRank:
    """The same trace as that of another rank."""
    window = None if one.window is None else replace(one.window, rank=rank)
    return replace(one, rank=rank, window=window)


@dataclass(frozen=True, slots=True)
class _Clock:
    base_ns: int

    def __call__(self, moment: float) -> int:
        return self.base_ns + round(moment * _US)


def _window(trace: Trace, found: TracedSteps, rank: int) -> DeepWindow | None:
    """Kernels by class and idle time by cause over the steady steps, or over a trace without steps; None if there is nothing to tell."""
    steps = found.steps[1:] if len(found.steps) >= TRACED_START_ROWS else found.steps
    if not steps:
        return _of_whole(trace, rank)
    first, last = steps[0].gpu_parts, steps[-1].gpu_parts
    on_gpu = (first[0][1], last[-1][2]) if first and last else None
    try:
        return summary_of(_cut(trace, steps), rank=rank, first_step=steps[0].number, on_gpu=on_gpu)
    except ValueError:
        return None


def _of_whole(trace: Trace, rank: int) -> DeepWindow | None:
    if not trace.on_gpu:
        return None
    begin, end = trace.kernels[0].start, max(kernel.end for kernel in trace.kernels)
    calls = [call.start for call in trace.calls]
    marked = replace(trace, marks=[min([begin, *calls[:1]]), max([end, *calls[-1:]]) + 1.0])
    try:
        return replace(summary_of(marked, rank=rank, on_gpu=(begin, end)), whole=True)
    except ValueError:
        return None


def _cut(trace: Trace, steps: Sequence[TracedStep]) -> Trace:
    """The trace of these steps alone: what the host did in them, and the work that it launched in them."""
    begin, end = steps[0].start, steps[-1].end
    launches = launches_of(trace)

    def launched(span: Span) -> bool:
        call = launches.get(span.correlation)
        return begin <= (span.start if call is None else call.start) < end

    return replace(
        trace,
        kernels=[kernel for kernel in trace.kernels if launched(kernel)],
        copies=[copy for copy in trace.copies if launched(copy)],
        calls=[call for call in trace.calls if begin <= call.start < end],
        operators=[span for span in trace.operators if begin <= span.start < end],
        marks=[*(step.start for step in steps), end],
    )


def _rows(count: int, *columns: str) -> Table:
    return np.zeros(count, np.dtype([(name, np.int64) for name in columns]))


def _step_table(trace: Trace, found: TracedSteps, to_ns: _Clock, *, blind: bool) -> Table:
    rows = _rows(len(found.steps), *STEP_FIELDS, "flags", "count")
    for row, step in zip(rows, found.steps, strict=True):
        row["step"], row["count"] = step.number, 1
        row["t_start_ns"], row["t_end_ns"] = to_ns(step.start), to_ns(step.end)
        for phase, us in step.host.items():
            row[f"{phase}_ns"] = round(us * _US)
        row["micro_batches"] = max(1, len(step.fetches))
        row["loader"] = LOADER if step.fetches else -1
        row["flags"] = FLAG_TRACED | (0 if step.fed and not blind else FLAG_NO_LOADER)
        row["samples"] = batch_size(trace, step, found.thread) * max(1, len(step.fetches))
        inside = [mark for mark in step.fetches if "#_SingleProcess" in mark.name]
        row["fetches"] = len(inside)
        # how much of it is computing is unknown: as if all of it were, workers are predicted to need the most cores
        row["fetch_ns"] = row["fetch_cpu_ns"] = round(sum(mark.end - mark.start for mark in inside) * _US)
    return rows


def _gpu_table(trace: Trace, steps: Sequence[TracedStep]) -> Table:
    """Times on the GPU's timeline. Exposed collectives of other phases are counted with the backward pass, as those of DDP are."""
    rows = _rows(len(steps), *GPU_STEP_FIELDS, "flags", BEHIND)
    exchange, others = _exchange(trace)
    exposed = without(exchange, others)
    gap = 0.0  # of the step before: a gap ends with the next step's fetch
    for row, step in zip(rows, steps, strict=True):
        for name in GPU_STEP_FIELDS[GPU_STEP_FIELDS.index("allocated_bytes") :]:
            row[name] = -1
        row["step"] = step.number
        row[BEHIND] = round((step.gpu_parts[0][1] - step.start) * _US)
        own = dict(step.gpu)
        for phase, begin, end in step.gpu_parts:
            if phase not in ("backward", "gap") and exposed:
                waited = length(common([(begin, end)], exposed))
                own[phase] -= waited
                own["backward"] += waited
        for phase in ("input_wait", "forward", "backward"):
            row[f"{phase}_ns"] = round(own[phase] * _US)
        row["optimizer_ns"] = round((own["clip"] + own["optimizer"]) * _US)
        row["gap_ns"] = round(gap * _US)
        gap = own["gap"]
    return rows


def _exchange(trace: Trace) -> tuple[list[Interval], list[Interval]]:
    """(times in collectives, times in other work) of the GPU, or of the host in a job on the CPU."""
    if trace.on_gpu:
        kinds = [(kernel, kernel_class(kernel.name) == "nccl") for kernel in trace.kernels]
        return union(span for span, is_one in kinds if is_one), union(span for span, is_one in kinds if not is_one)
    exchange = (span for span in trace.operators if operator_class(span.name) == "nccl")
    return union(exchange), union(span for span in trace.operators if span.name.startswith("aten::"))


def _comm_table(trace: Trace, steps: Sequence[TracedStep], to_ns: _Clock) -> Table | None:
    """Time in collectives per step, and the part of it that other work hides; None if the trace has none."""
    exchange, others = _exchange(trace)
    if not exchange:
        return None
    rows = _rows(len(steps), *COMM_FIELDS, "flags")
    for number, (row, step) in enumerate(zip(rows, steps, strict=True)):
        begin, end = step.start, step.end
        if step.gpu_parts:
            begin, end = step.gpu_parts[0][1], step.gpu_parts[-1][2]
        own = common([(begin, end)], exchange)
        row["step"], row["iteration"] = step.number, number
        row["comm_ns"] = round(length(own) * _US)
        row["overlap_ns"] = round(length(common(own, others)) * _US)
        row["forward_ns"] = round(step.host.get("forward", 0.0) * _US)
        row["compute_ns"] = round((step.gpu or step.host).get("backward", 0.0) * _US)
        backward, after = step.backwards[-1] if step.backwards else (step.start, step.end)
        row["backward_start_ns"], row["compute_end_ns"] = to_ns(backward), to_ns(after)
        row["comm_start_ns"] = to_ns(own[0][0] if own else after)
        row["comm_end_ns"] = to_ns(own[-1][1] if own else after)
    return rows
