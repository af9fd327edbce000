"""Waits for the GPU, copies to it, and stacks between steps, in a trace."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Trace, read_trace
from rn50_advisor.advisor.traces.python_stacks import PythonStacks
from rn50_advisor.advisor.traces.traced_calls import copies, gap_samples, waits
from rn50_advisor.advisor.traces.traced_steps import TracedSteps, find_steps
from traced_loops import traced_loop
from traces import TraceBook


def parts(book: TraceBook) -> tuple[Trace, TracedSteps, PythonStacks]:
    trace = read_trace(book.document())
    found = find_steps(trace)
    return trace, found, PythonStacks(trace, found.thread)


def called_from(book: TraceBook, name: str, at: float, took: float, place: str) -> None:
    """Adds the call of a Python function, with its caller's line."""
    book.host(name, at, took, cat="python_function", CallFrom=place)


def test_waits_of_the_training_thread_by_operator_and_line() -> None:
    book = traced_loop(steps=4)
    for number in range(4):
        at = 1_000_000 + number * 97_500 + 96_990
        called_from(book, "<built-in method item of Tensor object at 0x7f>", at - 5, 450.0, "train.py:30")
        book.host("aten::item", at, 400)
        book.call("cudaStreamSynchronize", at + 10, 300)
    (site,) = waits(*parts(book))
    assert (site["call"], site["count"], site["looks"], site["phase"]) == ("item", 4, 4, "gap")
    assert (site["file"], site["line"], site["blocked_ns"]) == ("train.py", 30, 4 * 300_000)


def test_a_functions_first_line_is_not_told_as_the_place_of_a_wait() -> None:
    """Traces of torch 1.11 to 2.9 hold of each frame where its function begins."""
    book = traced_loop(steps=4)
    for number in range(4):
        at = 1_000_000 + number * 97_500 + 96_990
        book.host("train.py(12): train", at - 10, 480.0, cat="python_function")
        book.host("aten::item", at, 400)
        book.call("cudaStreamSynchronize", at + 10, 300)
    (site,) = waits(*parts(book))
    assert (site["call"], site["count"]) == ("item", 4) and not site.get("file")


def test_copies_by_their_kind_of_memory() -> None:
    book = traced_loop(steps=3)
    for number in range(3):
        at = 1_000_000 + number * 97_500 + 2_000
        book.copy("Memcpy HtoD (Pageable -> Device)", at + 60, 500.0, 9_600_000, called=at + 5, held=600.0)
        book.copy("Memcpy HtoD (Pinned -> Device)", at + 700, 100.0, 64, called=at + 650, held=5.0)
    pageable, pinned = sorted(copies(*parts(book)), key=lambda site: site["pinned"])
    assert (pageable["bytes"], pageable["non_blocking"], pageable["phase"]) == (28_800_000, False, "forward")
    assert (pinned["bytes"], pinned["non_blocking"], pinned["looks"]) == (192, True, 3)


def test_a_copy_that_its_operator_waits_for_is_blocking_and_no_wait_of_its_own() -> None:
    book = traced_loop(steps=3)
    for number in range(3):
        at = 1_000_000 + number * 97_500 + 98
        book.host("aten::to", at, 900)
        book.copy("Memcpy HtoD (Pinned -> Device)", at + 60, 500.0, 9_600_000, called=at + 5, held=5.0)
        book.call("cudaStreamSynchronize", at + 20, 600)
    (copy,) = copies(*parts(book))
    assert (copy["non_blocking"], copy["blocked_ns"]) == (False, 3 * 605_000)
    assert waits(*parts(book)) == []


def test_stacks_between_steps_are_samples_of_their_lines() -> None:
    book = traced_loop(steps=3, between=10_000.0)
    for number in range(3):
        at = 1_000_000 + number * 107_000 + 97_000
        called_from(book, "train.py(7): log_images", at, 6_000.0, "train.py:50")
        called_from(book, "PIL/Image.py(9): save", at + 10, 5_980.0, "train.py:8")
        called_from(book, "torch/profiler/profiler.py(9): step", at + 6_000, 4_000.0, "train.py:51")
    samples = [sample for _, sample in gap_samples(*parts(book))]
    lines = {(sample["user"]["file"], sample["user"]["line"]) for sample in samples if sample["user"]}
    assert lines == {("train.py", 8)}
    assert len(samples) == 3 * 6


def test_without_stacks_there_are_no_samples() -> None:
    assert gap_samples(*parts(traced_loop(between=10_000.0))) == []


def test_a_line_that_waits_for_the_gpu_is_none_that_takes_the_time_between_steps() -> None:
    book = traced_loop(steps=3, between=10_000.0)
    for number in range(3):
        at = 1_000_000 + number * 107_000 + 97_000
        called_from(book, "<built-in method item of Tensor object at 0x7f>", at, 8_000.0, "train.py:50")
        book.call("cudaStreamSynchronize", at, 8_000.0)
        called_from(book, "train.py(7): log", at + 8_000, 2_000.0, "train.py:51")
        called_from(book, "PIL/Image.py(9): save", at + 8_000, 2_000.0, "train.py:8")
    samples = [sample for _, sample in gap_samples(*parts(book))]
    assert {sample["user"]["line"] for sample in samples if sample["user"]} == {8}
    assert len(samples) == 30
