"""Traces of two steps, with the same kernels in each. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from traces import ADD, BATCH_NORM, CONV, TraceBook, convolution

STEP_US = 10_000.0


def two_steps(fill) -> TraceBook:
    """A trace of two steps, each written by `fill(book, begin)`. A mark precedes a step's first kernel, because the host runs ahead."""
    book = TraceBook()
    for number in range(2):
        begin = 1_000_000.0 + number * STEP_US
        book.mark(begin - 500)
        fill(book, begin)
    book.mark(1_000_000.0 + 2 * STEP_US - 500)
    return book


def plain(book: TraceBook, begin: float) -> None:
    """8 ms of kernels without a gap, then 2 ms idle because the next kernel comes too late."""
    operator = convolution(book, begin - 400)
    book.kernel(CONV, begin, 4000, launched=begin - 390, operator=operator)
    book.kernel(BATCH_NORM, begin + 4000, 2000)
    book.kernel(ADD, begin + 6000, 1000)
    book.host("Optimizer.step#SGD.step", begin + 300, 200, cat="user_annotation")
    book.kernel(ADD, begin + 7000, 1000, launched=begin + 400)


def window(book: TraceBook) -> DeepWindow:
    return window_of(book.document(), rank=0, first_step=12)
