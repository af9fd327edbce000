"""Floating-point operations of a traced step, from the shapes that the profiler keeps: convolutions, matrix products, attention.

A multiply-add counts as two. The arithmetic is that of `torch.utils.flop_counter`; operators without a formula count nothing, as there. Of
operators inside each other one counts.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

Shape = Sequence[int]

_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}
_ATTENTION = "aten::_scaled_dot_product_"
COUNTED = ("aten::convolution", "aten::convolution_backward", *_PRODUCTS)


def is_counted(name: str) -> bool:
    return name in COUNTED or (name.startswith(_ATTENTION) and "attention" in name)


def operator_flops(name: str, args: Mapping[str, Any]) -> float | None:
    """None where the trace does not hold the shapes, or the operator has no formula."""
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
    """(input, weight, bias, stride, padding, dilation, transposed, output padding, groups)."""
    taken, weight = shapes[0], shapes[1]
    told = args.get("Concrete Inputs")
    if not isinstance(told, list):
        raise ValueError("no strides")
    stride, padding, dilation = (_numbers(told[at]) for at in (3, 4, 5))
    per_output = prod(weight[1:])
    if str(told[6]) == "True":  # transposed: each input is spread over the kernel
        return 2.0 * prod(taken) * per_output
    out = [
        (size + 2 * _nth(padding, n) - _nth(dilation, n) * (weight[2 + n] - 1) - 1) // _nth(stride, n) + 1
        for n, size in enumerate(taken[2:])
    ]
    return 2.0 * taken[0] * weight[0] * prod(out) * per_output


def _convolution_backward(shapes: Sequence[Shape], args: Mapping[str, Any]) -> float:
    """(gradient of the output, input, weight, …, output mask): as much for the input's gradient as for the weight's."""
    gradient, taken, weight = shapes[:3]
    told = args.get("Concrete Inputs")
    mask = _flags(told[-1]) if isinstance(told, list) and told else [True, True]
    transposed = isinstance(told, list) and len(told) > 7 and str(told[7]) == "True"
    once = 2.0 * prod(taken if transposed else gradient) * prod(weight[1:])
    return once * sum(mask[:2])


def _attention(name: str, shapes: Sequence[Shape]) -> float:
    """Two products forward; backward five, of which one makes the scores anew. Shapes are (batch, heads, length, width)."""
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
    """One number may stand for all dimensions."""
    return numbers[n] if n < len(numbers) else numbers[0]
