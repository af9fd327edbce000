"""Without a loader a step ends with a turn of the optimizers, whatever their number."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.steps.optimizer_turns import FIRST_IS_GONE_AFTER
from step_loops import Loop


@pytest.fixture
def loop():
    return Loop()


def test_a_loop_with_a_new_optimizer_and_no_loader_steps_with_it(loop):
    """Folds of a cross-validation on tensors in memory, each with an optimizer of its own."""
    for optimizer in (100, 200, 300):
        for _ in range(6):
            loop.forward()
            loop.backward()
            loop.optimize(optimizer=optimizer)
    # three turns until it is known that no loader comes, and two until a loop has ended, are one step each
    assert len(loop.paper.steps) == 4 + 5 + 5
    assert loop.phases() == {"forward": 5, "backward": 7, "optimizer": 2}


def test_a_new_loop_of_two_optimizers_and_no_loader_makes_one_step_a_turn(loop):
    for optimizers in ((1, 2), (3, 4)):
        for _ in range(6):
            for optimizer in optimizers:
                loop.forward()
                loop.backward()
                loop.optimize(optimizer=optimizer)
    assert len(loop.paper.steps) == 4 + 5
    assert loop.phases() == {"forward": 10, "backward": 14, "optimizer": 4}


def test_an_optimizer_that_joins_a_loop_later_is_no_new_loop(loop):
    """A generator that trains after some turns of its discriminator alone."""
    for optimizers in ((1,), (1, 2)):
        for _ in range(6):
            for optimizer in optimizers:
                loop.forward()
                loop.backward()
                loop.optimize(optimizer=optimizer)
    turn = {"forward": 10, "backward": 14, "optimizer": 4}
    assert [loop.phases(i) for i in range(-4, 0)] == [turn] * 4


def test_a_first_optimizer_that_does_not_come_back_is_gone_after_a_while(loop):
    """One that stepped too seldom to show that the loop has no loader."""
    for optimizer, turns in ((1, 1), (2, FIRST_IS_GONE_AFTER + 6)):
        for _ in range(turns):
            loop.forward()
            loop.backward()
            loop.optimize(optimizer=optimizer)
    assert loop.phases() == {"forward": 5, "backward": 7, "optimizer": 2}
