"""Work per second of a job, window by window, on the clock of its own training."""

from __future__ import annotations

import pytest

from recordings import plan, recording, step
from rn50_advisor.advisor.trials.progress import progress_of


def test_an_even_job_is_equally_fast_in_each_window_also_within_a_step() -> None:
    progress = progress_of(recording({0: plan(60)}))
    assert progress is not None
    assert progress.in_samples
    assert progress.step_s == pytest.approx(0.1)
    rates = progress.rates(0.03, 0.25)
    assert len(rates) == 23
    assert rates == pytest.approx([80.0] * 23)


def test_windows_begin_where_they_are_told_to_and_only_whole_ones_count() -> None:
    progress = progress_of(recording({0: [*plan(30), *plan(30, forward=80)]}))
    assert progress is not None
    assert progress.rates(3.0, 1.5) == pytest.approx([8 / 0.15] * 3)
    assert progress.rates(7.4, 1.5) == []


def test_steps_of_the_warm_up_are_left_out() -> None:
    progress = progress_of(recording({0: [*plan(10, forward=500), *plan(20)]}), skip_steps=10)
    assert progress is not None
    assert progress.trained_s == pytest.approx(2.0)
    assert progress.rates(0.0, 1.0) == pytest.approx([80.0, 80.0])
    assert progress_of(recording({0: plan(11)}), skip_steps=10) is None
    assert progress_of(recording({})) is None


def test_evaluations_and_checkpoints_do_not_count() -> None:
    steps = [step(evaluation=700 if n % 10 == 9 else 0, checkpoint=300 if n % 15 == 14 else 0) for n in range(60)]
    progress = progress_of(recording({0: steps}))
    assert progress is not None
    assert progress.trained_s == pytest.approx(6.0)
    assert progress.rates(0.0, 2.0) == pytest.approx([80.0] * 3)


def test_the_work_of_all_ranks_counts_for_as_long_as_each_has_trained() -> None:
    progress = progress_of(recording({0: plan(40), 1: plan(30)}))
    assert progress is not None
    assert progress.trained_s == pytest.approx(3.0)
    assert progress.rates(0.0, 1.0) == pytest.approx([160.0] * 3)


def test_a_job_without_a_known_batch_counts_steps() -> None:
    progress = progress_of(recording({0: plan(40, samples=0)}))
    assert progress is not None
    assert not progress.in_samples
    assert progress.rates(0.0, 1.0) == pytest.approx([10.0] * 4)
