"""Counts floating-point operations of a traced step from the profiler's shapes: convolutions, matrix products, attention.

A multiply-add counts as two. The arithmetic is that of `torch.utils.flop_counter`. Of nested operators only the outermost counts. If
products ran that no counted operator launched (cuDNN's recurrent layers, other libraries, kernels written by torch.compile, CUDA graphs),
there is no result: a partial sum would look like the whole.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span, Trace, launches_of, operators_behind, union, within
from rn50_advisor.advisor.analysis.kernels.kernel_names import is_recurrent, kernel_class

Shape = Sequence[int]

# Index of the first factor among the operator's inputs.
_PRODUCTS = {
    "aten::mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::bmm": 0,
    "aten::baddbmm": 1,
    "aten::_scaled_mm": 0,
}
_ATTENTION = "aten::_scaled_dot_product_"
COUNTED = ("aten::convolution", "aten::convolution_backward", *_PRODUCTS)
_UNCOUNTED_MAX = 0.05  # of the products' time; other errors of a rate are as large


def is_counted(name: str) -> bool:
    return name in COUNTED or (name.startswith(_ATTENTION) and "attention" in name)


def step_flops(trace: Trace) -> float | None:
    """FLOPs of a step between the marks; None if an operator's shapes are missing or only part of the products was counted."""
    begin, end = trace.marks[0], trace.marks[-1]
    counted = [span for span in trace.operators if is_counted(span.name)]
    if _uncounted_share(trace, counted) > _UNCOUNTED_MAX:
        return None
    total, until, thread = 0.0, 0.0, ""
    for span in sorted((s for s in counted if begin <= s.start < end), key=lambda s: (s.thread, s.start)):
        if span.thread == thread and span.end <= until:
            continue  # inside another one
        found = operator_flops(span.name, span.args)
        if found is None:
            return None
        total, until, thread = total + found, span.end, span.thread
    return total / (len(trace.marks) - 1) if total > 0 else None


def _uncounted_share(trace: Trace, counted: list[Span]) -> float:
    """Share of the GPU's product time (convolutions, matrix products) that no counted operator launched."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in counted:
        spans[span.thread].append(span)
    inside = {thread: union(own) for thread, own in spans.items()}
    launches, behind = launches_of(trace), operators_behind(trace)
    whole = uncounted = 0.0
    for kernel in trace.kernels:
        call, operator = launches.get(kernel.correlation), behind.get(kernel.external)
        if call is None or not trace.marks[0] <= call.start < trace.marks[-1] or not _is_product(kernel, operator):
            continue
        whole += kernel.end - kernel.start
        if operator is None or not within(operator.start, inside.get(operator.thread, [])):
            uncounted += kernel.end - kernel.start
    return uncounted / whole if whole > 0 else 0.0


def _is_product(kernel: Span, operator: Span | None) -> bool:
    kind = kernel_class(kernel.name, operator.name if operator else "")
    return kind in ("conv", "matmul") or is_recurrent(kernel.name)


def operator_flops(name: str, args: Mapping[str, Any]) -> float | None:
    """FLOPs of one operator; None if the trace lacks its shapes or there is no formula for it."""
    shapes = args.get("Input Dims")
    if not isinstance(shapes, list):
        return None
    try:
        if name == "aten::convolution":
            return _convolution(shapes, args)
        if name == "aten::convolution_backward":
            return _convolution_backward(shapes, args)
        if name in _PRODUCTS:
            one, other = shapes[_PRODUCTS[name] : _PRODUCTS[name] + 2]
            return 2.0 * prod(one) * int(other[-1])
        return _attention(name, shapes) if is_counted(name) else None
    except (IndexError, TypeError, ValueError, SyntaxError, ZeroDivisionError):
        return None


def _convolution(shapes: Sequence[Shape], args: Mapping[str, Any]) -> float:
    """FLOPs; the inputs are (input, weight, bias, stride, padding, dilation, transposed, output padding, groups)."""
    taken, weight = shapes[0], shapes[1]
    inputs = args.get("Concrete Inputs")
    if not isinstance(inputs, list):
        raise ValueError("no strides")
    stride, padding, dilation = (_numbers(inputs[at]) for at in (3, 4, 5))
    per_output = prod(weight[1:])
    if str(inputs[6]) == "True":  # transposed: each input is spread over the kernel
        return 2.0 * prod(taken) * per_output
    out = [
        (size + 2 * _nth(padding, n) - _nth(dilation, n) * (weight[2 + n] - 1) - 1) // _nth(stride, n) + 1
        for n, size in enumerate(taken[2:])
    ]
    return 2.0 * taken[0] * weight[0] * prod(out) * per_output


def _convolution_backward(shapes: Sequence[Shape], args: Mapping[str, Any]) -> float:
    """FLOPs; the inputs are (output's gradient, input, weight, …, output mask). The input's and the weight's gradient cost the same."""
    gradient, taken, weight = shapes[:3]
    inputs = args.get("Concrete Inputs")
    mask = _flags(inputs[-1]) if isinstance(inputs, list) and inputs else [True, True]
    transposed = isinstance(inputs, list) and len(inputs) > 7 and str(inputs[7]) == "True"
    once = 2.0 * prod(taken if transposed else gradient) * prod(weight[1:])
    return once * sum(mask[:2])


def _attention(name: str, shapes: Sequence[Shape]) -> float:
    """FLOPs of two products forward, or five backward, one of which recomputes the scores. Shapes: (batch, heads, length, width)."""
    first = 1 if "backward" in name else 0  # backward begins with the gradient
    query, key = shapes[first], shapes[first + 1]
    product = 2.0 * prod(query) * int(key[-2])
    return product * (5.0 if "backward" in name else 2.0)


def _numbers(text: Any) -> list[int]:
    value = ast.literal_eval(text) if isinstance(text, str) else text
    return [int(number) for number in value]


def _flags(text: Any) -> list[bool]:
    value = ast.literal_eval(text) if isinstance(text, str) else text
    return [bool(flag) for flag in value]


def _nth(numbers: Sequence[int], n: int) -> int:
    """The n-th number. A single number stands for all dimensions."""
    return numbers[n] if n < len(numbers) else numbers[0]
