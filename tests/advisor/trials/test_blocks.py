"""Blocks of a job that switches between two variants: which steps count, and what their pairs say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from recordings import recording, step
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.trials.blocks import BlockSchedule, log_ratios, settling_steps
from rn50_advisor.probes.rank.layout import FLAG_DEEP, FLAG_EPOCH_START

SCHEDULE = BlockSchedule(from_step=20, block_steps=12, order=(0, 1, 1, 0))
SETTLING = 4
GAIN = 1.5
Edit = Callable[[int, int, dict[str, float]], dict[str, float]]


def variant(number: int) -> int:
    return SCHEDULE.variant((number - SCHEDULE.from_step) // SCHEDULE.block_steps)


def job(edit: Edit | None = None, *, blocks: int = 8, ranks: int = 1, last: int = 0) -> Recording:
    """Steps of 90 ms without the change and 60 ms with it; `edit` changes single steps, given their number and rank."""
    steps = SCHEDULE.begin(blocks) + last
    plans = {}
    for rank in range(ranks):
        plan = []
        for number in range(steps):
            made = step(backward=20.0, forward=10.0 if variant(number) else 40.0, input_wait=20.0, optimizer=10.0)
            plan.append(edit(number, rank, made) if edit else made)
        plans[rank] = plan
    return recording(plans)


def ratios(made: Recording, schedule: BlockSchedule = SCHEDULE) -> list[float]:
    return log_ratios(made, schedule, settling=SETTLING).get(1, [])


def test_each_pair_of_blocks_says_the_speed_up() -> None:
    assert ratios(job()) == pytest.approx([math.log(GAIN)] * 4)


def test_a_block_that_is_not_whole_is_in_no_pair() -> None:
    assert len(ratios(job(blocks=7, last=11))) == 3 and len(ratios(job(blocks=1))) == 0


def test_the_schedule_is_that_of_the_request() -> None:
    request = {"variants": [[], [{}]], "from_step": 20, "block_steps": 12, "order": [0, 1, 1, 0]}
    assert BlockSchedule.of(request) == SCHEDULE
    assert [variant(number) for number in (0, 19, 20, 31, 32, 55, 56, 68, 80)] == [0, 0, 0, 0, 1, 1, 0, 0, 1]


def test_several_changes_have_their_own_pairs() -> None:
    schedule = BlockSchedule(20, 12, (0, 1, 1, 0, 2, 0))
    assert list(schedule.pairs(6)) == [(0, 1), (3, 2), (5, 4)]
    found = log_ratios(job(blocks=6), schedule, settling=SETTLING)
    assert set(found) == {1, 2} and len(found[1]) == 2 and len(found[2]) == 1


def test_changes_beside_each_other_are_no_pair() -> None:
    assert list(BlockSchedule(0, 12, (1, 2, 0)).pairs(3)) == [(2, 1)]


def after_switch(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
    place = (number - SCHEDULE.from_step) % SCHEDULE.block_steps
    switched = variant(number) != variant(number - SCHEDULE.block_steps)
    return {**made, "input_wait": 500.0} if switched and 0 <= place < SETTLING else made


def one_evaluation(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
    """In one block without the change, and what follows it finds all batches made."""
    if number == 24:
        return {**made, "evaluation": 3000.0}
    return {**made, "input_wait": 0.0} if 24 < number <= 24 + SETTLING else made


def one_epoch(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
    return {**made, "flags": FLAG_EPOCH_START, "input_wait": 900.0} if number == 40 else made


def profiled(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
    return {**made, "flags": FLAG_DEEP, "forward": 400.0} if number in (27, 38) else made


@pytest.mark.parametrize("edit", [after_switch, one_evaluation, one_epoch, profiled])
def test_what_only_one_side_has_is_left_out(edit: Edit) -> None:
    assert ratios(job(edit)) == pytest.approx([math.log(GAIN)] * 4)


def test_a_checkpoint_in_every_step_is_part_of_the_step() -> None:
    found = ratios(job(lambda number, rank, made: {**made, "checkpoint": 60.0}))
    assert found == pytest.approx([math.log(150 / 120)] * 4)


def test_both_sides_are_charged_equally_often_for_what_both_have() -> None:
    """Two checkpoints in one block and one in the other say nothing about the change."""

    def saved(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        return {**made, "checkpoint": 300.0} if number in (22, 30, 42) else made

    first, *_ = ratios(job(saved))
    kept = 12 + 8  # the second block begins with a switch
    extra = 300.0 * 3 / kept
    assert first == pytest.approx(math.log((90 + extra) / (60 + extra)))


def test_a_change_of_the_cost_of_an_epochs_start_counts() -> None:
    def epochs(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        wait = 20.0 + (100.0 if variant(number) else 900.0)
        return {**made, "flags": FLAG_EPOCH_START, "input_wait": wait} if number % 6 == 0 else made

    assert all(found > math.log(GAIN) + 0.3 for found in ratios(job(epochs)))


def test_a_block_of_which_too_little_is_left_is_in_no_pair() -> None:
    def busy(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        return {**made, "evaluation": 500.0} if number in (20, 25, 30) else made

    assert len(ratios(job(busy))) == 3


def test_samples_decide_where_the_batch_differs() -> None:
    def larger(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        return {**made, "samples": 16.0 if variant(number) else 8.0}

    assert ratios(job(larger)) == pytest.approx([math.log(2 * GAIN)] * 4)
    assert ratios(job(lambda number, rank, made: {**made, "samples": 0.0})) == pytest.approx([math.log(GAIN)] * 4)


def test_the_slowest_rank_sets_the_pace_of_the_job() -> None:
    def uneven(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        return {**made, "forward": made["forward"] + 30.0} if rank == 1 else made

    assert ratios(job(uneven, ranks=2)) == pytest.approx([math.log(120 / 90)] * 4)


def test_one_rank_that_evaluates_for_all_is_seen() -> None:
    def rank_0(number: int, rank: int, made: dict[str, float]) -> dict[str, float]:
        return {**made, "evaluation": 3000.0} if rank == 0 and number == 24 else made

    assert ratios(job(rank_0, ranks=2)) == pytest.approx([math.log(GAIN)] * 4)


def test_without_steps_or_with_a_second_start_there_are_no_pairs() -> None:
    assert log_ratios(recording({}), SCHEDULE, settling=SETTLING) == {}
    twice = job()
    again = np.concatenate([twice.steps[0], twice.steps[0]])
    again["t_start_ns"][len(twice.steps[0]) :] += 10**12
    again["t_end_ns"][len(twice.steps[0]) :] += 10**12
    assert log_ratios(replace(twice, steps={0: again}), SCHEDULE, settling=SETTLING) == {}


def test_more_prefetched_batches_take_longer_to_settle() -> None:
    assert settling_steps(0, 2) == 2 and settling_steps(4, 2) == 10
