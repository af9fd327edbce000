"""Summarises a profiler window: on a GPU kernels by class, tensor cores, idle time, copies, exchange; on a CPU operators by class.

A window is two steps or more. The interval from the first kernel of one step to the first kernel of the last contains everything in the
steps between them, including their starts. Idle time is measured over this interval. Kernels are counted over all steps.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from rn50_advisor.advisor.analysis.kernels.attention_parts import attention_s
from rn50_advisor.advisor.analysis.kernels.chrome_trace import (
    Interval,
    Span,
    Trace,
    common,
    is_to_device,
    launches_of,
    length,
    operators_behind,
    read_trace,
    union,
    within,
)
from rn50_advisor.advisor.analysis.kernels.idle_gaps import SYNC_CALL, idle_by_cause
from rn50_advisor.advisor.analysis.kernels.kernel_names import (
    is_attention,
    is_elementwise_operator,
    is_optimizer_step,
    is_scaffold,
    is_template,
    kernel_class,
    operator_class,
    short_name,
    uses_tensor_cores,
)
from rn50_advisor.advisor.analysis.kernels.operator_flops import step_flops
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow, KernelRow

_ROWS_MAX = 20
_SHAPES_MAX = 100  # characters
_US = 1e-6
_LARGE_COPY_BYTES = 4e6  # 77 us on the fastest link, so that the few microseconds of start-up matter little
_HALF = ("bf16", "fp16", "fp8", "fp4")
_NARROW = re.compile(r"float([48])_")


def window_of(document: Mapping[str, Any], *, rank: int, first_step: int = 0) -> DeepWindow:
    """The summary of a trace. Raises ValueError if the document is no trace, or contains nothing to summarise."""
    return summary_of(read_trace(document), rank=rank, first_step=first_step)


def summary_of(trace: Trace, *, rank: int, first_step: int = 0, on_gpu: Interval | None = None) -> DeepWindow:
    """The summary of a trace's events between its marks. Raises ValueError if it contains nothing to summarise.

    `on_gpu`: when the GPU worked on all of these steps, if that is known.
    """
    if len(trace.marks) < 2:
        raise ValueError("no whole step in it")
    if trace.on_gpu:
        return _on_gpu(trace, rank, first_step, on_gpu)
    if not trace.operators:
        raise ValueError("neither kernels nor operators in it")
    return _on_cpu(trace, rank, first_step)


def _on_gpu(trace: Trace, rank: int, first_step: int, whole_steps: Interval | None) -> DeepWindow:
    steps = len(trace.marks) - 1
    launches, behind = launches_of(trace), operators_behind(trace)
    optimizing = union(span for span in trace.operators if is_optimizer_step(span.name))
    classes: dict[str, float] = defaultdict(float)
    rows = _Rows()
    for kernel in trace.kernels:
        operator = behind.get(kernel.external)
        call = launches.get(kernel.correlation)
        kind = kernel_class(kernel.name, operator.name if operator else "")
        if kind not in ("nccl", "layout") and call is not None and within(call.start, optimizing):
            kind = "optimizer"
        classes[kind] += kernel.end - kernel.start
        rows.add(short_name(kernel.name), kind, kernel, operator, _on_tensor_cores(kernel, operator))
    for copy in trace.copies:
        rows.add_time(copy.name, "copy", copy.end - copy.start, None)
    busy = union(kernel for kernel in trace.kernels)
    whole = trace.kernels[-1].end - trace.kernels[0].start
    period = whole_steps or _period(trace, launches)
    # the profiler itself waits for the GPU before it stops
    waits = [c for c in trace.calls if SYNC_CALL.search(c.name) and trace.marks[0] <= c.start < trace.marks[-1]]
    to_device = [copy for copy in trace.copies if is_to_device(copy)]
    pageable, pinned = ([copy for copy in to_device if kind in copy.name] for kind in ("Pageable", "Pinned"))
    rates = _large_mb_per_s(pinned)
    exchange = union(kernel for kernel in trace.kernels if kernel_class(kernel.name) == "nccl")
    others = union(kernel for kernel in trace.kernels if kernel_class(kernel.name) != "nccl")
    periods = steps if whole_steps else max(1, steps - 1)  # in `period`
    step_s = ((period[1] - period[0]) / periods if period else whole / steps) * _US
    return DeepWindow(
        rank=rank,
        device="cuda",
        steps=steps,
        step_s=step_s,
        first_step=first_step,
        hardware=trace.hardware,
        classes={kind: us * _US / steps for kind, us in classes.items() if us > 0},
        busy_s=length(common(busy, [period])) * _US / periods if period else length(busy) * _US / steps,
        tensor_core_share=rows.tensor_core_us / rows.product_us if rows.product_us > 0 else None,
        idle={cause: us * _US / periods for cause, us in idle_by_cause(trace, *period).items()} if period else {},
        launches=len(trace.kernels) / steps,
        mean_kernel_s=sum(k.end - k.start for k in trace.kernels) * _US / len(trace.kernels),
        syncs=len(waits) / steps,
        sync_s=sum(wait.end - wait.start for wait in waits) * _US / steps,
        pinned_bytes=_bytes(pinned) / steps,
        pinned_mb_per_s=median(rates) if rates else None,
        pinned_least_mb_per_s=min(rates, default=None),
        pinned_most_mb_per_s=max(rates, default=None),
        pageable_bytes=_bytes(pageable) / steps,
        pageable_s=sum(copy.end - copy.start for copy in pageable) * _US / steps,
        copy_s=length(union(trace.copies)) * _US / steps,
        nccl_s=length(exchange) * _US / steps,
        nccl_overlap_share=length(common(exchange, others)) / length(exchange) if exchange else None,
        flops=step_flops(trace),
        attention_s=attention_s(trace),
        precision=rows.precision(),
        rows=rows.most(steps),
    )


def _on_cpu(trace: Trace, rank: int, first_step: int) -> DeepWindow:
    steps = len(trace.marks) - 1
    inside = [span for span in trace.operators if span.end > trace.marks[0] and span.start < trace.marks[-1]]
    classes: dict[str, float] = defaultdict(float)
    rows = _Rows()
    for span, own_us, kind in _own_times(inside):
        if kind is not None:
            classes[kind] += own_us
            if not is_scaffold(span.name):
                rows.add_time(span.name, kind, own_us, span)
    # gloo exchanges in its own threads
    exchange = union(span for span in inside if operator_class(span.name) == "nccl")
    others = union(span for span in inside if _is_work(span))
    return DeepWindow(
        rank=rank,
        device="cpu",
        steps=steps,
        step_s=(trace.marks[-1] - trace.marks[0]) * _US / steps,
        first_step=first_step,
        classes={kind: us * _US / steps for kind, us in classes.items() if us > 0},
        nccl_s=length(exchange) * _US / steps,
        nccl_overlap_share=length(common(exchange, others)) / length(exchange) if exchange else None,
        flops=step_flops(trace),
        precision=rows.precision(),
        rows=rows.most(steps),
    )


def _is_work(span: Span) -> bool:
    """True for an operator other than a collective; annotations of the user's own have no namespace."""
    return "::" in span.name and operator_class(span.name) != "nccl" and not is_scaffold(span.name)


def _period(trace: Trace, launches: Mapping[int, Span]) -> Interval | None:
    """The interval from the first kernel of the first step to the first of the last; None if there is no whole step between them."""
    if len(trace.marks) < 3:
        return None
    launched = [
        (call.start, kernel.start)
        for kernel in trace.kernels
        if (call := launches.get(kernel.correlation)) is not None and call.start >= trace.marks[0]
    ]
    first = min((start for _, start in launched), default=float("inf"))
    last = min((start for launch, start in launched if launch >= trace.marks[-2]), default=float("inf"))
    return (first, last) if first < last < float("inf") else None


class _Rows:
    """Time by kernel or operator, with the input shapes of the longest call."""

    def __init__(self) -> None:
        self._us: dict[tuple[str, str], float] = defaultdict(float)
        self._count: Counter[tuple[str, str]] = Counter()
        self._longest: dict[tuple[str, str], tuple[float, Span | None]] = {}
        self._cores: dict[tuple[str, str], bool | None] = {}
        self._types: Counter[str] = Counter()
        self.product_us = self.tensor_core_us = 0.0  # convolutions and matrix products without attention

    def add(self, name: str, kind: str, kernel: Span, operator: Span | None, cores: bool) -> None:
        us = kernel.end - kernel.start
        eligible = kind in ("conv", "matmul")
        self._add(name, kind, us, operator)
        self._cores[name, kind] = cores if eligible else None
        # attention in single precision uses TF32 whatever the switches say
        if eligible and not is_attention(kernel.name):
            self.product_us += us
            self.tensor_core_us += us if cores else 0.0
        if eligible:
            self._types[_type(operator, cores)] += round(us * 1000)

    def add_time(self, name: str, kind: str, us: float, operator: Span | None) -> None:
        self._add(name, kind, us, operator)
        if kind in ("conv", "matmul"):
            self._types[_type(operator, False)] += round(us * 1000)

    def _add(self, name: str, kind: str, us: float, operator: Span | None) -> None:
        key = name, kind
        self._us[key] += us
        self._count[key] += 1
        if us >= self._longest.get(key, (-1.0, None))[0]:
            self._longest[key] = us, operator

    def precision(self) -> str:
        """The precision of most of the products; empty if unknown."""
        return self._types.most_common(1)[0][0] if self._types else ""

    def most(self, steps: int) -> tuple[KernelRow, ...]:
        return tuple(
            KernelRow(
                name=key[0],
                kind=key[1],
                seconds=us * _US / steps,
                count=self._count[key] / steps,
                tensor_cores=self._cores.get(key),
                operator=operator.name if operator is not None and operator.name != key[0] else "",
                shapes=_shapes(operator),
            )
            for key, us in sorted(self._us.items(), key=lambda item: -item[1])[:_ROWS_MAX]
            for operator in [self._longest[key][1]]
        )


def _on_tensor_cores(kernel: Span, operator: Span | None) -> bool:
    if is_template(kernel.name):
        return _type(operator, False) in _HALF  # for float32 the trace does not show whether TF32 was allowed
    return uses_tensor_cores(kernel.name)


def _type(operator: Span | None, cores: bool) -> str:
    """bf16, fp16, fp8, fp4, tf32 or fp32, by the first floating-point input of the operator."""
    types = operator.args.get("Input type") if operator is not None else None
    words = [str(word).lower() for word in types] if isinstance(types, list) else []
    for word in words:
        if "bfloat16" in word:
            return "bf16"
        if "half" in word:
            return "fp16"
        if narrow := _NARROW.search(word):
            return f"fp{narrow[1]}"
        if word.startswith("float"):
            return "tf32" if cores else "fp32"
    return ""


def _shapes(operator: Span | None) -> str:
    dims = operator.args.get("Input Dims") if operator is not None else None
    if not isinstance(dims, list):
        return ""
    sizes = ["×".join(str(n) for n in shape) for shape in dims if isinstance(shape, list) and shape]
    return ", ".join(part for part in sizes if "[" not in part)[:_SHAPES_MAX]


def _bytes(copies: Iterable[Span]) -> float:
    found = (copy.args.get("bytes") for copy in copies)
    return float(sum(value for value in found if isinstance(value, (int, float))))


def _large_mb_per_s(copies: Iterable[Span]) -> list[float]:
    """Rates of the large copies, which show the link's bandwidth."""
    return [
        size / (copy.end - copy.start)
        for copy in copies
        if (size := _bytes([copy])) >= _LARGE_COPY_BYTES and copy.end > copy.start
    ]


def _own_times(spans: list[Span]) -> Iterator[tuple[Span, float, str | None]]:
    """Yields each operator with its time outside nested operators (microseconds) and its class.

    The class is its own, its parent's, or elementwise; None for a stretch of time that is no operator.
    """
    threads: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        threads[span.thread].append(span)
    for own in threads.values():
        stack: list[tuple[Span, str | None, list[float]]] = []
        for span in own:
            while stack and stack[-1][0].end <= span.start:
                yield _closed(stack)
            parent = stack[-1][1] if stack else None
            if stack:
                stack[-1][2][0] += min(span.end, stack[-1][0].end) - span.start
            kind = parent if parent in ("optimizer", "input", "conv", "matmul", "norm") else operator_class(span.name)
            if kind is None:
                kind = "elementwise" if is_elementwise_operator(span.name) else parent
            stack.append((span, kind, [0.0]))
        while stack:
            yield _closed(stack)


def _closed(stack: list[tuple[Span, str | None, list[float]]]) -> tuple[Span, float, str | None]:
    span, kind, inside = stack.pop()
    return span, max(0.0, span.end - span.start - inside[0]), kind
