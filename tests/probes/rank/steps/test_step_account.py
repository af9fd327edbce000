"""Which batches train and which evaluate, and where a step ends without a loader."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.layout import (
    FLAG_NO_LOADER,
    FLAG_NO_OPTIMIZER,
)
from rn50_advisor.probes.rank.steps.step_account import (
    EVALUATING,
    INVISIBLE_OPTIMIZER_AFTER,
    TRAINING,
)
from step_loops import EVAL, OTHER, PLAIN, TRAIN, Loop, mode


@pytest.fixture
def loop():
    return Loop()


def test_an_evaluation_loader_fetched_with_gradients_on_is_found_by_its_deeds(loop):
    loop.step()
    loop.step()
    for _ in range(3):
        loop.fetch(EVAL, ms=20)
        loop.spend(4)
    loop.exhaust(EVAL)
    for _ in range(2):
        loop.step()
    loop.fetch()
    assert loop.account.loaders == {TRAIN: TRAINING, EVAL: EVALUATING}
    assert all(loop.phases(i)["input_wait"] == 10 for i in range(4))
    assert sum(loop.phases(i).get("evaluation", 0) for i in range(4)) == 72


def test_a_loader_taken_for_an_evaluating_one_is_put_right_by_a_backward(loop):
    loop.step()
    loop.account.loaders[OTHER] = EVALUATING
    for _ in range(2):
        loop.fetch(OTHER)
        loop.train_on_batch()
    assert loop.account.loaders[OTHER] == TRAINING


def test_batches_fetched_under_no_grad_train_once_a_habit_shows(loop):
    for _ in range(6):
        loop.fetch(evaluating=True)
        loop.train_on_batch()
    loop.fetch(evaluating=True)
    assert loop.account.loaders == {TRAIN: TRAINING}
    assert loop.phases(-1) == {name: ms for name, ms in PLAIN.items() if name != "gap"}


@pytest.mark.parametrize("batches", [1, 2])
def test_evaluation_beside_training_on_tensors_is_no_habit(loop, batches):
    for _ in range(6):
        for _ in range(batches):
            loop.fetch(EVAL, evaluating=True)
            loop.spend(4)
        if batches == 1:
            loop.exhaust(EVAL, evaluating=True)
        loop.train_on_batch()
    assert TRAINING not in loop.account.loaders.values()


def test_one_batch_of_evaluation_before_each_step_is_no_habit_where_another_loader_trains(loop):
    for _ in range(6):
        loop.step()
        loop.fetch(EVAL, evaluating=True)
        loop.spend(4)
    assert loop.account.loaders == {TRAIN: TRAINING}


def test_two_loaders_that_feed_one_step_both_train(loop):
    for _ in range(3):
        loop.fetch(TRAIN)
        loop.fetch(OTHER)
        loop.train_on_batch()
    loop.fetch()
    assert loop.account.loaders == {TRAIN: TRAINING, OTHER: TRAINING}
    assert loop.phases(1) == {"input_wait": 20, "forward": 5, "backward": 7, "optimizer": 2}


def test_a_look_ahead_of_one_batch_before_the_first_forward_is_input(loop):
    loop.fetch(first=True)
    for _ in range(3):
        loop.fetch()
        loop.train_on_batch()
    loop.fetch()
    assert loop.account.loaders == {TRAIN: TRAINING}
    assert "evaluation" not in loop.phases(0) and loop.phases(0)["input_wait"] == 20


def test_an_optimizer_that_cannot_be_seen_makes_each_backward_a_step_after_a_while(loop):
    for _ in range(INVISIBLE_OPTIMIZER_AFTER + 5):
        loop.fetch()
        loop.forward()
        loop.backward()
        loop.spend(2)
    assert loop.paper.flags[-1] & FLAG_NO_OPTIMIZER
    assert loop.phases(-1) == {"input_wait": 10, "forward": 5, "backward": 7, "gap": 2}


def test_workers_of_an_evaluation_end_in_it(loop):
    loop.account.loaders[EVAL] = EVALUATING
    loop.step()
    phase = loop.account.workers_end(EVAL)
    loop.spend(30)
    loop.account.enter(phase)
    loop.fetch()
    assert loop.phases(0) == {**PLAIN, "evaluation": 30}


def test_an_evaluation_of_one_batch_with_gradients_on_does_not_train(loop):
    for _ in range(3):
        loop.step()
    for _ in range(2):
        loop.fetch(EVAL)
        loop.forward()
        loop.exhaust(EVAL)
        loop.step()
    loop.fetch()
    assert loop.account.loaders == {TRAIN: TRAINING, EVAL: EVALUATING}
    phases_of_steps = [loop.phases(index) for index in range(len(loop.paper.steps))]
    assert [{**phases, "evaluation": 0} for phases in phases_of_steps] == [{**PLAIN, "evaluation": 0}] * 5
    assert sum(phases.get("evaluation", 0) for phases in phases_of_steps) == 2 * 15


def test_an_epoch_of_one_batch_that_is_looked_ahead_of_trains(loop):
    for _ in range(4):
        loop.fetch()
        loop.exhaust()
        loop.train_on_batch()
    loop.fetch()
    assert loop.account.loaders == {TRAIN: TRAINING}
    assert not any(flags & FLAG_NO_LOADER for flags in loop.paper.flags[1:])


def test_a_loop_without_loader_and_optimizer_steps_with_its_backward_after_a_while(loop):
    """As in PyTorch's own example of a language model: parameters are changed by hand."""
    for _ in range(INVISIBLE_OPTIMIZER_AFTER + 5):
        loop.forward()
        loop.backward()
        loop.spend(3)
    assert len(loop.paper.steps) == 5
    assert loop.phases() == {"forward": 8, "backward": 7}
    assert all(flags & FLAG_NO_LOADER and flags & FLAG_NO_OPTIMIZER for flags in loop.paper.flags)


def test_in_eval_mode_a_batch_of_the_training_loader_is_an_evaluations(loop):
    model = mode(loop)
    loop.step()
    loop.step()
    model["eval"] = True
    loop.account.evaluation_begin()
    for _ in range(3):
        loop.fetch(ms=20)
        loop.spend(4)
    loop.exhaust()
    model["eval"] = False
    loop.step()
    loop.fetch()
    assert loop.phases(1) == {**PLAIN, "evaluation": 72}
    assert loop.phases(2) == PLAIN
    assert loop.account.loaders == {TRAIN: TRAINING}


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("ahead", [True, False])
def test_an_evaluation_that_looks_ahead_uses_its_last_batch_after_its_loader_is_exhausted(loop, ahead, batches):
    """As accelerate does, which asks for the next batch before it hands out the last one."""
    model = mode(loop)
    loop.step()
    model["eval"] = True
    loop.account.evaluation_begin()
    loop.fetch(EVAL, ms=10, first=True)
    for number in range(1, batches):
        loop.spend(0.1 if ahead and number == 1 else 20)
        loop.fetch(EVAL, ms=10)
    loop.spend(0.1 if ahead and batches == 1 else 20)
    loop.exhaust(EVAL)
    loop.spend(20)
    model["eval"] = False
    loop.account.evaluation_end()
    loop.step()
    loop.fetch()
    assert loop.phases(0)["gap"] == pytest.approx(PLAIN["gap"] + (0 if ahead else 20))
    assert loop.phases(0)["evaluation"] == pytest.approx(10 * batches + 20 * batches + 0.1 * ahead)
