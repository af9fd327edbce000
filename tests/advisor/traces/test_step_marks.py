"""Fetches, backward passes, optimizer steps and steps of the profiler in a trace."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.traces.step_marks import is_backward, loop_marks, profiler_steps, training_thread
from traced_loops import SINGLE, traced_loop
from traces import HOST, TraceBook

THREAD = f"{HOST['pid']}/{HOST['tid']}"


def test_the_marks_of_a_loop_in_order() -> None:
    marks = loop_marks(read_trace(traced_loop(steps=2).document()), THREAD)
    assert [mark.kind for mark in marks] == ["fetch", "backward", "optimizer"] * 2
    assert (marks[0].name, marks[0].end - marks[0].start) == (SINGLE, 2_000.0)


def test_a_fetch_within_a_fetch_is_none_of_its_own() -> None:
    book = traced_loop(steps=1)
    book.host(SINGLE, 1_000_500.0, 100.0, cat="user_annotation")
    assert [mark.kind for mark in loop_marks(read_trace(book.document()), THREAD)].count("fetch") == 1


def test_the_profilers_steps_have_numbers() -> None:
    assert [number for number, _ in profiler_steps(read_trace(traced_loop(steps=3).document()), THREAD)] == [5, 6, 7]


def test_the_training_thread_steps_and_is_not_the_busiest() -> None:
    book = traced_loop(steps=1)
    for place in range(50):
        book.host("aten::decode", 2_000_000.0 + place, 1.0, tid=5)
    assert training_thread(read_trace(book.document())) == THREAD
    alone = TraceBook()
    alone.host("aten::add", 0.0, 1.0, tid=8)
    assert training_thread(read_trace(alone.document())) == f"{HOST['pid']}/8"


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        ("autograd::engine::evaluate_function: AddmmBackward0", True),
        ("struct torch::autograd::AccumulateGrad", True),
        ("CudnnConvolutionBackward", True),
        ("aten::convolution_backward", False),
        ("aten::conv2d", False),
    ],
)
def test_operators_of_the_backward_pass_by_any_versions_names(name: str, backward: bool) -> None:
    assert is_backward(name) is backward


def test_on_a_cpu_a_backward_pass_ends_with_the_collectives_that_it_waits_for() -> None:
    book, at = TraceBook(), 0.0
    for number in range(3):
        book.host(f"ProfilerStep#{number}", at, 10_000, cat="user_annotation")
        book.host("aten::linear", at + 1_000, 1_000)
        book.host("autograd::engine::evaluate_function: A", at + 2_000, 1_000)
        book.host("gloo:all_reduce", at + 2_500, 5_500, cat="user_annotation", tid=77)
        book.host("Optimizer.step#SGD.step", at + 8_500, 1_000, cat="user_annotation")
        at += 10_000
    backward = [mark for mark in loop_marks(read_trace(book.document()), THREAD) if mark.kind == "backward"]
    assert [mark.end - mark.start for mark in backward] == [6_000.0] * 3
