"""Optimizer steps inside a backward pass are noted in the threads that make them, and read by the one that waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns

from rn50_advisor.probes.rank.pass_marks import THREADS_MAX, UPDATES_MAX, Hooked


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_an_update_of_another_thread_is_handed_out_once() -> None:
    hooked = Hooked()
    before = perf_counter_ns()

    def update() -> None:
        hooked.begin()
        hooked.end(77)

    in_thread(update)
    ((began, ended, optimizer),) = hooked.take(before)
    assert before <= began <= ended <= perf_counter_ns()
    assert optimizer == 77
    assert hooked.take(before) == []


def test_what_began_before_the_backward_pass_is_no_part_of_it() -> None:
    hooked = Hooked()
    hooked.begin()
    hooked.end(1)
    since = perf_counter_ns()
    hooked.begin()
    hooked.end(2)
    assert [optimizer for *_, optimizer in hooked.take(since)] == [2]
    assert hooked.take(0) == []


def test_the_optimizers_own_step_inside_the_scalers_is_one_update() -> None:
    hooked = Hooked()
    hooked.begin()
    first = perf_counter_ns()
    hooked.begin()
    hooked.end(1)
    hooked.end(1)
    ((began, *_),) = hooked.take(0)
    assert began <= first


def test_an_end_without_a_beginning_is_no_update() -> None:
    hooked = Hooked()
    hooked.end(1)
    hooked.begin()
    in_thread(lambda: hooked.end(1))  # another thread's
    assert hooked.take(0) == []


def test_an_update_that_raised_is_forgotten_with_its_backward_pass() -> None:
    hooked = Hooked()
    hooked.begin()
    hooked.take(0)
    hooked.end(1)
    assert hooked.take(0) == []


def test_neither_updates_nor_threads_are_kept_without_bound() -> None:
    hooked = Hooked()
    for _ in range(UPDATES_MAX + 5):
        hooked.begin()
        hooked.end(1)
    assert len(hooked.take(0)) == UPDATES_MAX
    go, begun = threading.Event(), threading.Semaphore(0)

    def update() -> None:
        hooked.begin()
        begun.release()
        go.wait()
        hooked.end(1)

    threads = [threading.Thread(target=update) for _ in range(THREADS_MAX + 3)]
    for thread in threads:
        thread.start()
        begun.acquire()
    go.set()
    for thread in threads:
        thread.join()
    assert len(hooked.take(0)) == THREADS_MAX
