"""The account of a step on a clock of its own: who owns each millisecond, and where steps begin and end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rn50_advisor.probes.rank.layout import (
    FLAG_EPOCH_START,
    FLAG_NO_LOADER,
    FLAG_SKIPPED_UPDATE,
    FLAG_TAIL,
)
from rn50_advisor.probes.rank.steps.step_phases import FIRST_CLOCKED
from step_loops import EVAL, MS, PLAIN, TRAIN, Loop, mode


@pytest.fixture
def loop():
    return Loop()


def test_a_plain_loop_gives_every_millisecond_one_owner(loop):
    for _ in range(3):
        loop.step()
    loop.fetch()
    assert [loop.phases(i) for i in range(3)] == [PLAIN] * 3
    assert [s["step"] for s in loop.paper.steps] == [0, 1, 2]
    assert loop.paper.steps[0]["samples"] == 4


def test_consecutive_steps_leave_no_time_between_them(loop):
    for _ in range(4):
        loop.step()
    steps = loop.paper.steps
    assert all(a["t_end_ns"] == b["t_start_ns"] for a, b in pairwise(steps))


def test_accumulation_is_one_step_with_all_its_micro_batches(loop):
    for _ in range(2):
        for _ in range(3):
            loop.fetch()
            loop.forward()
            loop.backward()
            loop.spend(1)  # what the loop does before the next micro-batch
        loop.optimize()
    loop.fetch()
    assert loop.phases(0) == {"input_wait": 30, "forward": 15, "backward": 21, "optimizer": 2, "gap": 2, "clip": 1}
    assert loop.paper.steps[0]["micro_batches"] == 3 and loop.paper.steps[0]["samples"] == 12


def test_two_optimizers_of_one_batch_are_one_step_and_the_second_forward_is_forward(loop):
    for _ in range(2):
        loop.fetch()
        loop.forward()
        loop.backward()
        loop.optimize(optimizer=1)
        loop.forward(9)
        loop.backward()
        loop.optimize(optimizer=2)
    loop.fetch()
    assert loop.phases(0) == {"input_wait": 10, "forward": 14, "backward": 14, "optimizer": 4}


def test_clipping_between_backward_and_optimizer_is_told_apart(loop):
    loop.fetch()
    loop.backward()
    loop.optimize(clip=3)
    loop.fetch()
    assert loop.phases(0)["clip"] == 3


def test_an_optimizer_that_runs_the_closure_keeps_forward_and_backward_apart(loop):
    for _ in range(2):
        loop.fetch()
        loop.account.optimizer_begin(7)
        loop.forward()
        loop.backward()
        loop.spend(2)
        loop.account.optimizer_end(7)
    loop.fetch()
    assert loop.phases(0) == {"input_wait": 10, "forward": 5, "backward": 7, "optimizer": 2}


def test_a_scaler_that_skips_the_update_still_ends_a_flagged_step(loop):
    loop.fetch()
    loop.backward()
    loop.account.optimizer_begin(1)
    loop.account.update_skipped()
    loop.account.optimizer_end(1, stepped=False)
    loop.fetch()
    assert loop.paper.flags == [FLAG_SKIPPED_UPDATE]


def test_evaluation_under_no_grad_is_labelled_and_never_input_wait(loop):
    loop.step()
    for _ in range(3):
        loop.fetch(EVAL, ms=20, evaluating=True)
        loop.spend(4)
    loop.exhaust(EVAL, evaluating=True)
    loop.spend(1)
    loop.step()
    loop.fetch()
    assert loop.phases(0) == {**PLAIN, "gap": 2, "evaluation": 72}
    assert loop.phases(1) == PLAIN
    assert ("evaluation", 72) in loop.paper.spans


def test_a_batch_fetched_ahead_between_backward_and_optimizer_does_not_make_the_optimizer_forward(loop):
    loop.fetch()
    for _ in range(3):
        loop.forward()
        loop.backward()
        loop.fetch()
        loop.spend(3)
        loop.optimize()
    loop.forward()
    loop.backward()
    loop.fetch()
    assert loop.phases(1)["clip"] == 3 and loop.phases(1)["input_wait"] == 10


def test_a_loop_without_loader_steps_with_its_optimizer(loop):
    for _ in range(6):
        loop.train_on_batch()
    assert len(loop.paper.steps) == 4  # the first turns are one long step: nobody knows yet that no loader comes
    assert loop.phases(-1) == {"forward": 5, "backward": 7, "optimizer": 2}
    assert loop.paper.flags[-1] == FLAG_NO_LOADER


def test_one_fixed_batch_used_again_and_again_is_a_loop_without_loader(loop):
    loop.fetch()
    for _ in range(6):
        loop.train_on_batch()
    assert len(loop.paper.steps) == 4 and loop.paper.flags[-1] == FLAG_NO_LOADER


def test_two_optimizers_in_a_loop_without_loader_make_one_step_a_turn(loop):
    for _ in range(6):
        for optimizer in (1, 2):
            loop.forward()
            loop.backward()
            loop.optimize(optimizer=optimizer)
    assert loop.phases(-1) == {"forward": 10, "backward": 14, "optimizer": 4}


def test_a_backward_inside_a_backward_is_not_counted_twice(loop):
    loop.fetch()
    loop.account.backward_begin()
    assert loop.account.backward_begin() is False
    loop.spend(7)
    loop.account.backward_end()
    loop.optimize()
    loop.fetch()
    assert loop.phases(0)["backward"] == 7


def test_checkpoints_are_labelled_and_the_phase_around_them_goes_on(loop):
    loop.step()
    back = loop.account.checkpoint_begin()
    began = loop.now
    loop.spend(30)
    loop.account.checkpoint_end(back, began, 0)
    loop.spend(2)
    loop.fetch()
    assert loop.phases(0) == {**PLAIN, "gap": 3, "checkpoint": 30}
    assert ("checkpoint", 30) in loop.paper.spans


def test_making_a_training_iterator_is_input_of_the_epochs_first_step(loop):
    loop.step()
    loop.exhaust()
    began = loop.now
    loop.spend(50)
    loop.account.loader_started(TRAIN, False, began)
    loop.fetch(first=True)
    loop.train_on_batch()
    loop.fetch()
    assert loop.paper.steps[1]["loader_start_ns"] == 50 * MS
    assert loop.phases(1)["input_wait"] == 60
    assert loop.paper.flags == [0, FLAG_EPOCH_START]


def test_making_an_evaluation_iterator_is_no_input(loop):
    loop.step()
    began = loop.now
    loop.spend(50)
    loop.account.loader_started(EVAL, True, began)
    loop.fetch(EVAL, evaluating=True)
    loop.exhaust(EVAL, evaluating=True)
    loop.fetch()
    assert loop.phases(0)["evaluation"] == 60 and loop.phases(0)["input_wait"] == 10


def test_workers_that_are_let_go_of_after_an_epoch_end_in_the_next_ones_first_step(loop):
    loop.step()
    loop.spend(3)
    phase = loop.account.workers_end(TRAIN)
    loop.spend(30)
    loop.account.enter(phase)
    loop.spend(2)
    loop.step()
    loop.fetch()
    assert loop.phases(0) == {**PLAIN, "gap": PLAIN["gap"] + 3}
    assert loop.phases(1) == {**PLAIN, "input_wait": 40, "gap": PLAIN["gap"] + 2}


def test_workers_that_are_let_go_of_once_they_made_a_batch_are_no_forward(loop):
    loop.fetch()
    phase = loop.account.workers_end(TRAIN)
    loop.spend(30)
    loop.account.enter(phase)
    loop.train_on_batch()
    loop.spend(PLAIN["gap"])
    loop.fetch()
    assert loop.phases(0) == {**PLAIN, "input_wait": 40}


def test_what_follows_the_last_step_is_written_when_the_process_leaves(loop):
    loop.step()
    loop.exhaust()
    loop.fetch(EVAL, ms=20, evaluating=True)
    loop.account.leave()
    assert loop.paper.flags == [0, FLAG_TAIL]
    assert loop.phases(-1)["evaluation"] == 20
    assert loop.paper.ended


def test_cpu_clocks_are_read_in_every_long_step_and_in_some_short_ones(loop):
    for _ in range(8):
        loop.step(gap=500)
    assert all(loop.paper.clocked)
    middling = Loop()
    for _ in range(300):
        middling.step(gap=0)
    length_ms = sum(PLAIN.values())
    first = [n for n, clocked in enumerate(middling.paper.clocked) if clocked][FIRST_CLOCKED - 1]
    assert first == pytest.approx(FIRST_CLOCKED * 100 / length_ms, rel=0.2)
    later = middling.paper.clocked[first + 1 :]
    assert sum(later) == pytest.approx(len(later) * length_ms / 500, abs=1)
    short = Loop()
    for _ in range(8000):
        short.fetch(ms=0.2)
        short.forward(0.2)
        short.backward(0.2)
        short.optimize(0.2)
    assert sum(short.paper.clocked) == pytest.approx(FIRST_CLOCKED + (8000 * 0.8 - FIRST_CLOCKED * 100) / 410, abs=2)
    for step, clocked in zip(short.paper.steps, short.paper.clocked, strict=True):
        assert step["forward_cpu_ns"] == (step["forward_ns"] if clocked else 0)


def test_a_fetch_that_raises_leaves_a_sound_account(loop):
    loop.step()
    loop.exhaust()
    loop.spend(3)
    loop.step()
    loop.fetch()
    assert loop.phases(1) == {**PLAIN, "gap": 4}


def test_an_optimizer_that_raised_does_not_stay_open(loop):
    loop.step()
    loop.fetch()
    loop.forward()
    loop.backward()
    loop.account.optimizer_begin(100)  # and no end: out of memory, and the loop goes on with the next batch
    for _ in range(3):
        loop.step()
    loop.fetch()
    assert loop.phases() == PLAIN


def test_the_last_batch_of_a_loop_that_looks_ahead_came_from_its_loader(loop):
    for _ in range(3):  # epochs of two batches: fetched, fetched, trained, exhausted, trained
        loop.fetch()
        loop.fetch()
        loop.backward()
        loop.optimize()
        loop.exhaust()
        loop.backward()
        loop.optimize()
    loop.fetch()
    assert len(loop.paper.steps) == 6
    assert not any(flags & FLAG_NO_LOADER for flags in loop.paper.flags)


def update_inside(loop, parameters=30):
    """PyTorch's memory tutorial: an optimizer for each parameter, which a hook of its gradient runs."""
    assert loop.account.backward_begin()
    for parameter in range(parameters):
        loop.spend(1)
        loop.optimize(optimizer=1000 + parameter, ms=0.5)
    loop.account.backward_end()


def test_optimizers_that_step_inside_the_backward_leave_the_rest_of_it_to_the_backward(loop):
    for _ in range(3):
        loop.fetch()
        loop.forward()
        update_inside(loop)
        loop.spend(3)
    loop.fetch()
    assert len(loop.paper.steps) == 3
    assert loop.phases(-1) == {"input_wait": 10, "forward": 5, "backward": 30, "optimizer": 15, "gap": 3}


def test_without_a_loader_a_backward_that_updates_ends_the_step(loop):
    """More optimizers than others may come before the first is given up."""
    for _ in range(6):
        loop.forward()
        update_inside(loop)
    assert len(loop.paper.steps) == 4
    assert loop.phases(-1) == {"forward": 5, "backward": 30, "optimizer": 15}


def test_an_optimizer_that_raised_inside_the_backward_does_not_stay_open(loop):
    loop.fetch()
    loop.forward()
    assert loop.account.backward_begin()
    loop.account.optimizer_begin(1000)
    loop.spend(4)
    loop.account.backward_end()
    loop.step()
    loop.fetch()
    assert loop.phases(-1)["optimizer"] == 4 + 2 and loop.phases(-1)["gap"] == 1


# -- evaluations by the model's mode ---------------------------------------------------------------------------------------------


def in_memory(loop):
    """A step without a loader."""
    loop.train_on_batch()


def test_an_evaluation_without_a_loader_lasts_up_to_the_next_forward(loop):
    model = mode(loop)
    for _ in range(5):
        in_memory(loop)
    loop.account.evaluation_begin()
    loop.spend(80)
    for _ in range(2):
        in_memory(loop)
    phases_of_steps = [loop.phases(i) for i in range(len(loop.paper.steps))]
    assert sum(phases.get("evaluation", 0) for phases in phases_of_steps) == 80
    assert {phases["forward"] for phases in phases_of_steps[2:]} == {phases_of_steps[2]["forward"]}
    assert [span for span in loop.paper.spans if span[0] == "evaluation"] == [("evaluation", 80)]
    assert model["reports"] == 0


@pytest.mark.parametrize("forward", [5, 60])
def test_training_mode_ends_an_evaluation(loop, forward):
    for _ in range(5):
        in_memory(loop)
    loop.account.evaluation_begin()
    loop.spend(80)
    loop.account.evaluation_end()
    loop.forward(forward)
    loop.backward()
    loop.optimize()
    assert loop.phases() == {"evaluation": 80, "forward": forward, "backward": 7, "optimizer": 2}
    assert [span for span in loop.paper.spans if span[0] == "evaluation"] == [("evaluation", 80)]


def test_training_mode_between_backward_and_optimizer_goes_on_there(loop):
    for _ in range(5):
        in_memory(loop)
    loop.forward()
    loop.backward()
    loop.account.evaluation_begin()
    loop.spend(80)
    loop.account.evaluation_end()
    loop.optimize(clip=3)
    assert loop.phases() == {"evaluation": 80, "forward": 5, "backward": 7, "clip": 3, "optimizer": 2}


def test_a_model_trained_in_eval_mode_has_not_evaluated(loop):
    model = mode(loop)
    for _ in range(5):
        in_memory(loop)
    model["eval"] = True
    loop.account.evaluation_begin()
    for _ in range(3):
        in_memory(loop)
    assert model["reports"] == 1
    assert not any(loop.phases(i).get("evaluation") for i in range(len(loop.paper.steps)))
    assert not [span for span in loop.paper.spans if span[0] == "evaluation"]


def test_a_batch_that_was_only_looked_at_is_not_trained_on(loop):
    for _ in range(3):  # epochs: next(iter(loader)), then two steps
        loop.fetch(first=True)
        loop.fetch(first=True)
        loop.train_on_batch()
        loop.step()
    loop.fetch(first=True)
    assert [(step["samples"], step["micro_batches"]) for step in loop.paper.steps] == [(4, 1)] * 6


def test_a_loop_that_fetches_one_batch_ahead_trains_on_all_of_them(loop):
    for _ in range(3):
        loop.fetch(first=True)
        for _ in range(3):
            loop.fetch()
            loop.train_on_batch()
        loop.train_on_batch()
    loop.fetch(first=True)
    assert sum(step["samples"] for step in loop.paper.steps) == 3 * 4 * 4
