"""Steps and phases of a trace, on the host's and the GPU's timeline."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.traces.traced_steps import TracedSteps, find_steps
from traced_loops import SEVERAL, traced_loop
from traces import CONV_FP32, TraceBook


def steps_of(book: TraceBook) -> TracedSteps:
    return find_steps(read_trace(book.document()))


def test_a_step_runs_from_fetch_to_fetch_and_keeps_the_profilers_number() -> None:
    found = steps_of(traced_loop(steps=4))
    assert [step.number for step in found.steps] == [5, 6, 7, 8]
    assert (found.basis, found.numbered) == ("the fetches of the DataLoader", True)
    assert [step.end for step in found.steps[:-1]] == [step.start for step in found.steps[1:]]


def test_the_phases_of_a_step_on_the_host() -> None:
    step = steps_of(traced_loop(steps=4)).steps[1]
    wanted = {"input_wait": 2_000, "forward": 30_000, "backward": 60_000, "clip": 0, "optimizer": 5_000, "gap": 500}
    assert step.host == pytest.approx(wanted)
    assert sum(step.host.values()) == pytest.approx(step.end - step.start)


def test_the_gpus_timeline_shows_where_it_waits() -> None:
    """The host runs ahead: kernels of the forward end in its backward, so that the GPU does not notice the fetch."""
    book, at = TraceBook(), 0.0
    for number in range(4):
        book.host(f"ProfilerStep#{number}", at, 10_000, cat="user_annotation")
        book.host(SEVERAL, at, 1_000, cat="user_annotation")
        book.host("aten::conv2d", at + 1_000, 2_000)
        book.kernel(CONV_FP32, at + 3_500, 9_000, launched=at + 1_500)
        book.host("autograd::engine::evaluate_function: A", at + 3_000, 2_000, tid=9)
        book.host("Optimizer.step#SGD.step", at + 5_000, 5_000, cat="user_annotation")
        at += 10_000
    step = steps_of(book).steps[2]
    assert step.host["input_wait"] == 1_000
    assert step.gpu["input_wait"] == 0.0
    assert sum(step.gpu.values()) == pytest.approx(10_000)


def test_without_profiler_steps_fetches_mark_the_steps_and_the_update_ends_the_last() -> None:
    found = steps_of(traced_loop(steps=4, profiler_step=False))
    assert len(found.steps) == 4
    assert not found.numbered
    assert found.steps[-1].host["optimizer"] == pytest.approx(5_000)


def test_without_a_loader_the_profilers_marks_count_and_the_time_before_the_gpus_first_work_is_the_gap() -> None:
    found = steps_of(traced_loop(steps=4, fetch=0.0, late=7_000.0))
    assert (found.basis, len(found.steps)) == ("ProfilerStep#", 4)
    assert found.steps[1].host["gap"] == pytest.approx(7_500)
    assert found.steps[1].host["input_wait"] == 0.0
    assert found.steps[1].fetches == ()


def test_with_neither_the_updates_mark_the_steps() -> None:
    found = steps_of(traced_loop(steps=4, fetch=0.0, profiler_step=False))
    assert (found.basis, len(found.steps)) == ("the optimizer's steps", 3)


def test_a_step_with_several_batches_is_one_step() -> None:
    book, at = TraceBook(), 0.0
    for number in range(3):
        book.host(f"ProfilerStep#{number}", at, 10_000, cat="user_annotation")
        for part in (0, 4_000):
            book.host(SEVERAL, at + part, 1_000, cat="user_annotation")
            book.host("aten::conv2d", at + part + 1_000, 1_000)
            book.host("autograd::engine::evaluate_function: A", at + part + 2_000, 2_000, tid=9)
        book.host("Optimizer.step#SGD.step", at + 8_000, 1_500, cat="user_annotation")
        at += 10_000
    found = steps_of(book)
    assert [len(step.fetches) for step in found.steps] == [2, 2, 2]
    assert found.steps[0].host["input_wait"] == 2_000
    assert found.steps[0].host["backward"] == 4_000


def test_a_last_step_that_was_cut_is_left_out() -> None:
    book = traced_loop(steps=3)
    last = max(event["ts"] + event["dur"] for event in book.events if event["name"].startswith("ProfilerStep"))
    book.host("ProfilerStep#8", last, 900.0, cat="user_annotation")
    book.host(SEVERAL, last, 300.0, cat="user_annotation")
    assert [step.number for step in steps_of(book).steps] == [5, 6, 7]


def test_a_trace_without_any_mark_has_no_step() -> None:
    book = TraceBook()
    book.host("aten::add", 0.0, 5.0)
    assert steps_of(book).steps == ()


def test_what_the_loop_does_after_its_last_update_is_no_usual_step() -> None:
    book = traced_loop(steps=4)
    last = [event for event in book.events if event["name"].startswith("ProfilerStep")][-1]
    last["dur"] += 80_000.0
    assert [step.host["gap"] for step in steps_of(book).steps] == pytest.approx([500.0] * 4)
