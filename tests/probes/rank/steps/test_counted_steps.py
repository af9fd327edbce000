"""The time in counted steps is split as in marked ones, and marks that nobody noted are placed in order."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.steps.counted_steps import BATCH, MARKS, UPDATE_END, UsualStep, are_plain, placed

OFFSETS = [10, 30, 60, 70, 100]


def usual() -> UsualStep:
    step = UsualStep()
    step.offsets = list(OFFSETS)
    return step


def test_a_usual_step_is_learnt_from_marked_ones_and_follows_them_slowly() -> None:
    step = UsualStep()
    starts = [1000, 2000, 3000]
    step.learn(starts, [[start + offset for start in starts] for offset in OFFSETS])
    assert step.offsets == OFFSETS
    step.learn(starts, [[start + 2 * offset for start in starts] for offset in OFFSETS])
    assert step.offsets == [12, 37, 75, 87, 125]


@pytest.mark.parametrize(
    "noted",
    [
        pytest.param([[], [], [], [], []], id="no step"),
        pytest.param([[11, 12, 13, 14], [30], [60], [70], [90]], id="more batches than steps"),
        pytest.param([[40], [30], [60], [70], [90]], id="another order"),
    ],
)
def test_nothing_is_learnt_from_steps_that_are_not_plain(noted: list[list[int]]) -> None:
    step = usual()
    step.learn([0], noted)
    assert step.offsets == OFFSETS


def test_a_loop_without_loader_has_no_wait_for_a_batch() -> None:
    step = UsualStep()
    step.learn([0, 100], [[], [30, 130], [60, 160], [70, 170], [100]])
    assert step.offsets == [0, 30, 60, 70, 100]


@pytest.mark.parametrize("total_ns", [0, 1, 99, 1000, 123_457])
def test_parts_sum_to_the_whole(total_ns: int) -> None:
    parts = usual().split(total_ns)
    assert sum(parts) == total_ns and min(parts) >= 0
    if total_ns == 1000:
        assert parts == [100, 200, 300, 100, 300]


@pytest.mark.parametrize(
    ("updated", "until", "times"),
    [
        pytest.param(200, 250, [20, 60, 120, 140, 200], id="twice as long"),
        pytest.param(0, 250, OFFSETS, id="goes on"),
        pytest.param(0, 40, [10, 30, 40, 40, 40], id="interrupted"),
    ],
)
def test_marks_are_placed_where_they_usually_are(updated: int, until: int, times: list[int]) -> None:
    assert usual().place(0, updated, until) == times


@pytest.mark.parametrize(
    ("updates", "plain"),
    [([90, 190], True), ([90, 190, 250], True), ([90], False), ([90, 95, 190, 195], False), ([110, 190], False)],
)
def test_plain_steps_have_one_update_each(updates: list[int], plain: bool) -> None:
    assert are_plain([0, 100, 200], updates, [100, 200]) is plain


def test_each_step_gets_the_marks_it_had() -> None:
    noted = placed(usual(), [0, 200, 400], [100], [200, 400], seen=2, now=600)
    assert noted == [[10, 210, 410], [30, 430], [60], [70], [100]]
    assert len(noted) == MARKS and noted[UPDATE_END] == [100] and len(noted[BATCH]) == 3
