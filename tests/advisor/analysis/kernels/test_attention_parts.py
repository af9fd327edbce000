"""Attention in parts, in traces of real steps on the CPU and in made-up ones of a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_traces import STEP_US, two_steps, window
from rn50_advisor.advisor.analysis.kernels.attention_parts import attention_by_thread
from rn50_advisor.advisor.analysis.kernels.chrome_trace import STEP_MARK, read_trace
from traces import ADD, GEMM, TraceBook


def attention(book: TraceBook, begin: float, *, fused: bool = False) -> None:
    """A projection of 1 ms, attention of 4 ms between its products, and another projection of 1 ms."""
    names = ("aten::addmm", "aten::bmm", "aten::div", "aten::_softmax", "aten::bmm", "aten::addmm")
    if fused:
        book.host("aten::scaled_dot_product_attention", begin - 405, 105)
    for n, name in enumerate(names):
        at = begin - 500 + 50 * n
        operator = book.host(name, at, 40)
        book.kernel(GEMM if "mm" in name else ADD, begin + 1000 * n, 1000, launched=at + 5, operator=operator)


def test_kernels_from_one_product_to_the_other() -> None:
    assert STEP_US > 6_000
    assert window(two_steps(attention)).attention_s == pytest.approx(0.004)


def test_a_fused_operator_that_has_no_fused_kernel_is_none() -> None:
    def fused(book: TraceBook, begin: float) -> None:
        attention(book, begin, fused=True)
        for n, name in enumerate(("aten::bmm", "aten::bmm", "aten::_softmax_backward_data", "aten::bmm", "aten::bmm")):
            operator = book.host(name, begin + 50 * n, 40, tid=9)
            book.kernel(ADD, begin + 6000 + 100 * n, 100, launched=begin + 50 * n + 5, operator=operator)

    assert window(two_steps(fused)).attention_s == 0.0


def profiled(attend: Callable[[Any, Any, Any], Any], path: Path) -> tuple[list[float], Any]:
    """(starts of the attention's own parts, the trace) of a projection, this attention and a projection, forward and backward."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    into, out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
    x = torch.randn(4, 16, 32)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with record_function(STEP_MARK):
                q, k, v = into(x).chunk(3, -1)
            out(attend(q, k, v)).sum().backward()
        with record_function(STEP_MARK):
            pass
    profiler.export_chrome_trace(str(path))
    trace = read_trace(json.loads(path.read_text()))
    return [span.start for span in trace.operators if span.name == "aten::_softmax"], trace


@pytest.mark.torch
def test_real_steps_forward_and_backward(tmp_path: Path) -> None:
    def by_hand(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        return scores.softmax(-1) @ v

    softmaxes, trace = profiled(by_hand, tmp_path / "trace.json")
    found = [interval for intervals in attention_by_thread(trace).values() for interval in intervals]
    assert len(softmaxes) == 2 and len(found) == 4, "two forward and two backward passes"
    assert all(any(begin < at < end for begin, end in found) for at in softmaxes)
    products = [span for span in trace.operators if span.name == "aten::bmm"]
    assert len(products) == 2 * 6
    assert all(any(begin <= span.start and span.end <= end for begin, end in found) for span in products)
    others = [span for span in trace.operators if span.name in ("aten::addmm", "aten::mm")]
    assert others and not any(begin <= span.start < end for begin, end in found for span in others)


@pytest.mark.torch
def test_real_steps_of_other_things(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    for n, other in enumerate(
        (
            functional.scaled_dot_product_attention,
            lambda q, k, v: torch.sigmoid(q @ k.mT) @ v,
            lambda q, k, v: functional.softmax(q, -1) * (k @ k.mT @ v),
        )
    ):
        _, trace = profiled(other, tmp_path / f"{n}.json")
        assert attention_by_thread(trace) == {}
