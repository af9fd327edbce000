"""Why a GPU stood idle within a step: for input, for copies, after a wait of the host, for launches, or for another stream."""

from __future__ import annotations

import pytest

from kernel_traces import two_steps, window
from traces import ADD, CONV, TraceBook


def ends_dry(book: TraceBook, begin: float, **last) -> None:
    """6 ms of kernels, 3 ms of nothing, one more kernel of 1 ms."""
    book.kernel(CONV, begin, 6000)
    book.kernel(ADD, begin + 9000, 1000, **last)


def idle(fill) -> dict[str, float]:
    """Milliseconds by cause, those that are none left out."""
    return {cause: round(s * 1e3, 3) for cause, s in window(two_steps(fill)).idle.items() if s > 0}


def test_a_kernel_launched_after_the_gpu_ran_dry_came_too_late() -> None:
    assert idle(lambda book, begin: ends_dry(book, begin, launched=begin + 8990)) == {"launch": 3.0}


def test_a_kernel_launched_before_waited_for_another_stream() -> None:
    assert idle(lambda book, begin: ends_dry(book, begin, launched=begin + 100)) == {"other": 3.0}


def test_after_the_host_waited_for_the_gpu_the_wait_is_the_cause() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 1000, 5050)  # returns just after the kernel has ended
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"sync": 3.0}


def test_a_wait_that_had_long_ended_is_no_cause() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 1000, 2000)
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"launch": 3.0}


def test_a_wait_is_the_cause_of_no_more_than_it_held_the_host() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.call("cudaStreamSynchronize", begin + 5950, 60)  # then 3 ms of Python
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"sync": 0.06, "launch": 2.94}


def test_what_overlaps_a_fetch_is_for_input_and_the_rest_is_not() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        book.host(name, begin + 5000, 3000, cat="user_annotation")  # the first millisecond is hidden behind the kernel
        ends_dry(book, begin, launched=begin + 8990)

    assert idle(fill) == {"input": 2.0, "launch": 1.0}


def test_copies_and_the_hosts_part_in_them_are_separated_from_launches() -> None:
    def fill(book: TraceBook, begin: float) -> None:
        book.copy("Memcpy HtoD (Pageable -> Device)", begin + 7000, 1500, 19_267_584, called=begin + 6500, held=2000)
        ends_dry(book, begin, launched=begin + 8990)

    found = window(two_steps(fill))
    assert {cause: round(s * 1e3, 3) for cause, s in found.idle.items() if s} == {"copy": 2.0, "launch": 1.0}
    assert found.pageable_bytes == 19_267_584 and found.pageable_s == pytest.approx(1.5e-3) and found.pinned_bytes == 0
