"""A trace of torch's profiler as it is read: damaged events, what is no trace, and sums of intervals."""

from __future__ import annotations

import pytest

from kernel_traces import plain, two_steps, window
from rn50_advisor.advisor.analysis.kernels.chrome_trace import common, length, union, without
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
