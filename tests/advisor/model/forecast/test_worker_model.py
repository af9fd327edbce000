"""Forecasts for other numbers of workers: the knee, what is worth it, and ranks that nobody saw fed."""

from __future__ import annotations

import pytest

from fed_ranks import FEED, OWN, STEP, played, spread
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerModel, forecast


def test_what_crowding_was_measured_to_cost_replaces_what_it_might() -> None:
    step = StepModel(0.16, {0: OWN}, job_cpu_s=0.2, allowed_cores=8.0)
    unknown, known = played(step=step), played(step=step, crowding=(0.05, 0.1))
    assert unknown.best_s[4] < known.best_s[4] < known.worst_s[4] < unknown.worst_s[4]


def test_a_rank_whose_batches_nobody_saw_is_fed_as_the_others() -> None:
    found = forecast(WorkerModel(StepModel(0.16, {0: OWN, 1: OWN}), {0: FEED}))
    assert found is not None and found.best_s[2] == pytest.approx(0.1)
    assert forecast(WorkerModel(STEP, {})) is None
    assert forecast(WorkerModel(STEP, {3: FEED})) is None, "a rank without steps"


def test_the_same_model_gives_the_same_forecast() -> None:
    assert played(spread((0.1, 0.3, 0.05))) == played(spread((0.1, 0.3, 0.05)))


@pytest.mark.parametrize(
    ("worst_ms", "cap", "knee"),
    [
        ((260, 160, 100, 100, 100), None, 2),
        ((260, 160, 103, 100, 100), None, 2),  # the last 3 % are not worth a worker
        ((260, 160, 104, 100, 100), None, 3),
        ((260, 160, 104, 100, 100), 1, 1),
        ((100, 160, 160, 160, 160), None, 1),  # workers only cost: none is another rule's advice
        ((260, 160, 100, 120, 140), None, 2),
        ((260, 160, 130, 100, 90), 0, 1),
    ],
)
def test_the_knee_is_the_fewest_workers_near_the_best(worst_ms: tuple[int, ...], cap: int | None, knee: int) -> None:
    times = tuple(ms / 1000 for ms in worst_ms)
    assert Forecast(0, times, times).knee(cap) == knee


@pytest.mark.parametrize(
    ("best_ms", "worst_ms", "worth"),
    [
        ((100, 99, 99), (100, 101, 101), 0),
        ((100, 80, 80), (100, 99, 99), 1),  # a tenth is expected, though it may be nothing
        ((200, 110, 100), (200, 120, 104), 2),
    ],
)
def test_workers_that_bring_next_to_nothing_are_not_worth_it(
    best_ms: tuple[int, ...], worst_ms: tuple[int, ...], worth: int
) -> None:
    assert Forecast(0, tuple(t / 1000 for t in best_ms), tuple(t / 1000 for t in worst_ms)).worth() == worth


def test_beyond_the_last_count_nothing_changes() -> None:
    found = Forecast(1, (0.3, 0.2), (0.3, 0.2))
    assert found.step_s(9) == (0.2, 0.2) and found.most == 1
