"""Which ranks and GPUs differ from the others over the run, and curves as narrow as a screen."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.history import GpuHistory, History, compared, mean_curve, resampled

USUAL = (0.1,) * 20


@pytest.mark.parametrize(
    ("curve", "late", "apart"),
    [
        (USUAL, (0.0,) * 20, ()),
        ((0.12,) * 20, (), (3,)),
        ((*(0.12,), *(0.1,) * 19), (), ()),  # a single slow slice is chance
        ((0.105,) * 20, (), ()),
        (USUAL, (0.02,) * 20, (3,)),
        (USUAL, (0.002,) * 20, ()),
        ((None,) * 20, (None,) * 20, ()),
    ],
)
def test_ranks_that_are_slow_or_late_in_a_tenth_of_the_slices_stand_apart(curve, late, apart) -> None:
    steps = {**dict.fromkeys(range(3), USUAL), 3: curve}
    assert compared(History(0.0, 1.0, step_s=steps, late_s={3: late})).ranks_apart == apart


def test_one_rank_has_no_others() -> None:
    assert compared(History(0.0, 1.0, step_s={0: USUAL})).ranks_apart == ()
    assert compared(History(0.0, 1.0)).ranks_apart == ()


def test_the_rank_that_differs_most_often_comes_first() -> None:
    slow, often = (*(0.1,) * 15, *(0.2,) * 5), (0.2,) * 20
    steps = {**dict.fromkeys(range(6), USUAL), 6: slow, 7: often}
    assert compared(History(0.0, 1.0, step_s=steps)).ranks_apart == (7, 6)


def test_a_gpu_with_lower_clocks_than_the_others_stands_apart() -> None:
    alike = [GpuHistory(i, (97.0,) * 10, (1755.0,) * 10, (60.0 + i,) * 10) for i in range(3)]
    slow = GpuHistory(3, (97.0,) * 10, (*(1755.0,) * 8, *(900.0,) * 2), (62.0,) * 10)
    assert compared(History(0.0, 1.0, gpus=(*alike, slow))).gpus_apart == (3,)
    assert compared(History(0.0, 1.0, gpus=tuple(alike))).gpus_apart == ()
    assert compared(History(0.0, 1.0, gpus=(alike[0], slow))).gpus_apart == (), "of two, neither is the usual one"


def test_curves_shrink_to_means_of_what_is_known() -> None:
    assert resampled((1.0, 3.0, None, 5.0, None, None), 3) == (2.0, 5.0, None)
    assert resampled((1.0, 3.0), 2) == (1.0, 3.0) and resampled((1.0,), 0) == ()
    assert resampled((1.0, 4.0), 1, weights=(2.0, 1.0)) == (2.0,)
    assert mean_curve([(1.0, None), (3.0, None), ()]) == (2.0, None)


def test_a_history_knows_its_end_and_its_usual_step() -> None:
    made = History(2.0, 0.5, steps={0: (1.0,) * 4}, step_s={0: (0.1, None, 0.3, 0.2)})
    assert (made.slices, made.end_s, compared(made).usual_step_s) == (4, 4.0, 0.2)
    assert History(0.0, 1.0).slices == 0
