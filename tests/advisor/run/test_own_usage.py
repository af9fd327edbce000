"""The agent's own cost, and what it gives up beyond its budget."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.run.own_usage import SHED_ORDER, WINDOW_S, CostBook


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def shares(book: CostBook, clock: Clock, cpu_per_s: float, seconds: int) -> list[float]:
    found = []
    for _ in range(seconds):
        clock.now_s += 1.0
        share = book.over_budget(clock.now_s * cpu_per_s)
        if share is not None:
            found.append(share)
    return found


def test_within_budget_nothing_is_given_up() -> None:
    clock = Clock()
    book = CostBook(budget=0.01, grace_s=0.0, clock=clock)
    assert shares(book, clock, 0.009, 300) == []


def test_beyond_budget_it_answers_once_a_window_and_not_in_the_first_minute() -> None:
    clock = Clock()
    book = CostBook(budget=0.01, grace_s=60.0, clock=clock)
    assert shares(book, clock, 0.02, 60) == []
    found = shares(book, clock, 0.02, 4 * round(WINDOW_S))
    assert 2 <= len(found) <= 4
    assert found[0] == pytest.approx(0.02)


def test_things_are_given_up_in_a_fixed_order_and_once() -> None:
    book = CostBook(budget=0.01, grace_s=0.0)
    active = [name for name in SHED_ORDER if name != "gpu"]
    order = [name for _ in range(len(SHED_ORDER)) if (name := book.next_to_shed(active))]
    assert order == active
    assert book.next_to_shed(active) is None
