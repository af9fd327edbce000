"""Finds attention that a traced step computes in parts: batched products around a softmax, and their gradients in the backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal

from rn50_advisor.advisor.analysis.kernels.chrome_trace import (
    Interval,
    Span,
    Trace,
    launches_of,
    operators_behind,
    union,
    within,
)

_PRODUCTS = frozenset(("aten::bmm", "aten::baddbmm"))
_SOFTMAX, _SOFTMAX_BACKWARD = "aten::_softmax", "aten::_softmax_backward_data"
# No part of attention, so that the products before and after them belong to different things.
_OTHERS = frozenset(("aten::mm", "aten::addmm", "aten::convolution", "aten::native_layer_norm", "aten::embedding"))
# Where no fused kernel fits, this one computes in parts, too; it is asked for what it can.
_FUSED = "aten::scaled_dot_product_attention"
_GRADIENTS = 2  # products of the backward pass for one of the forward pass

Kind = Literal["product", "softmax", "softmax backward", "other"]


def attention_s(trace: Trace) -> float:
    """Seconds per step that a GPU's kernels take in such attention, forward and backward."""
    found = attention_by_thread(trace)
    launches, behind = launches_of(trace), operators_behind(trace)
    total = 0.0
    for kernel in trace.kernels:
        operator, call = behind.get(kernel.external), launches.get(kernel.correlation)
        launch = call or operator
        if launch is not None and within(launch.start, found.get((operator or launch).thread, [])):
            total += kernel.end - kernel.start
    return total / (len(trace.marks) - 1) / 1e6


def attention_by_thread(trace: Trace) -> dict[str, list[Interval]]:
    """When each of the host's threads called the operators of such attention; microseconds."""
    threads: dict[str, list[Span]] = defaultdict(list)
    for span in trace.operators:
        threads[span.thread].append(span)
    found = {thread: union(_attention(spans)) for thread, spans in threads.items()}
    if not any(span.name == _SOFTMAX and within(span.start, found[span.thread]) for span in trace.operators):
        return {}  # products and softmax of a backward pass alone are a fused operator's that found no fused kernel
    return found


def _attention(spans: list[Span]) -> Iterator[Interval]:
    """Of one thread's operators, from the first product of an attention to its last one. Forward there is one product on each side of the
    softmax, backward there are two.
    """
    before: list[Span] = []
    after: list[Span] = []
    softmax: Kind | None = None
    for kind, span in [*_kinds(spans), ("other", None)]:
        if kind == "product" and span is not None:
            (before if softmax is None else after).append(span)
        if softmax is not None and after and (kind != "product" or len(after) == _each_side(softmax)):
            yield before[-_each_side(softmax) :][0].start, after[-1].end
            before, after, softmax = [], [], None
        if kind == "other":
            before, after, softmax = [], [], None
        elif kind != "product" and before:
            softmax = kind


def _each_side(softmax: Kind) -> int:
    return 1 if softmax == "softmax" else _GRADIENTS


def _kinds(spans: list[Span]) -> Iterator[tuple[Kind, Span | None]]:
    fused_until = 0.0
    for span in spans:
        if span.name == _FUSED:
            fused_until = max(fused_until, span.end)
        if span.start < fused_until:
            continue
        if span.name in _PRODUCTS:
            yield "product", span
        elif span.name == _SOFTMAX:
            yield "softmax", span
        elif span.name == _SOFTMAX_BACKWARD:
            yield "softmax backward", span
        elif span.name in _OTHERS:
            yield "other", None
