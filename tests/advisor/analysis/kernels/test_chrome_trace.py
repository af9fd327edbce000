"""A trace of torch's profiler as it is read: damaged events, what is no trace, and sums of intervals."""

from __future__ import annotations

import pytest

from kernel_traces import plain, two_steps, window
from rn50_advisor.advisor.analysis.kernels.chrome_trace import common, length, read_trace, union, without
from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"traceEvents": {}},
        {"traceEvents": []},
        {"traceEvents": [None, {"ph": "X"}, {"ph": "X", "ts": "a", "cat": "kernel"}]},
    ],
)
def test_what_is_no_trace_is_refused(document) -> None:
    with pytest.raises(ValueError, match="in it"):
        window_of(document, rank=0)


def test_damaged_events_are_passed_over() -> None:
    book = two_steps(plain)
    whole = window(book)
    book.events += [
        {"ph": "X", "cat": "kernel", "name": "torn", "ts": None, "args": 3},
        {"ph": "X", "cat": "kernel"},
        {"ph": "i", "cat": "kernel", "ts": 5},
        7,  # type: ignore[list-item]
    ]
    assert window(book) == whole


def test_intervals() -> None:
    ones = union([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    assert ones == [(0.0, 3.0), (5.0, 6.0)] and length(ones) == 4.0
    assert common(ones, [(2.0, 5.5)]) == [(2.0, 3.0), (5.0, 5.5)]
    assert without(ones, [(1.0, 2.0), (5.5, 9.0)]) == [(0.0, 1.0), (2.0, 3.0), (5.0, 5.5)]


def test_python_functions_are_no_operators() -> None:
    book = two_steps(plain)
    book.host("train.py(12): main", 0.0, 9.0, cat="python_function")
    trace = read_trace(book.document())
    assert [span.name for span in trace.frames] == ["train.py(12): main"]
    assert not any(span.name.startswith("train.py") for span in trace.operators)


def test_calls_of_other_runtimes_are_calls_too() -> None:
    book = two_steps(plain)
    for cat in ("hip_runtime", "xpu_runtime", "Runtime"):
        book.host("launch", 0.0, 1.0, cat=cat)
    assert sum(call.name == "launch" for call in read_trace(book.document()).calls) == 3


def test_what_two_lists_of_intervals_have_in_common_late_in_the_longer_one() -> None:
    others = [(0.0, 10.0), (20.0, 55.0), (58.0, 70.0), (80.0, 90.0)]
    assert common([(50.0, 60.0)], others) == [(50.0, 55.0), (58.0, 60.0)]
    assert common([], others) == common(others, []) == []
