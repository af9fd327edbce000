"""What a step would take with another number of workers: worked examples, each with one thing that limits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_curve import worker_curve
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerFeed, WorkerModel, forecast

# rank 0 computes 100 ms from batch to batch and waits 60 ms for what takes 160 ms to make
FEED = WorkerFeed(workers=1, computing_s=(0.16,), waiting_s=(0.0,), rest_s=(0.1,))
OWN = {"input_wait": 0.06, "forward": 0.04, "backward": 0.05, "optimizer": 0.01}
STEP = StepModel(0.16, {0: OWN})


def played(feed: WorkerFeed = FEED, step: StepModel = STEP, **model: Any) -> Forecast:
    found = forecast(WorkerModel(step, dict.fromkeys(step.own, feed), **model))
    assert found is not None
    return found


def spread(times: tuple[float, ...]) -> WorkerFeed:
    return replace(FEED, computing_s=times, waiting_s=(0.0,) * len(times))


@pytest.mark.parametrize(
    ("workers", "step_s"),
    [
        pytest.param(1, 0.16, id="what was measured"),
        pytest.param(2, 0.1, id="two make one every 80 ms: training is the limit"),
        pytest.param(4, 0.1, id="more bring nothing"),
    ],
)
def test_equal_batches_come_as_fast_as_workers_take_turns(workers: int, step_s: float) -> None:
    assert played().step_s(workers) == pytest.approx((step_s, step_s))


def test_without_workers_making_and_training_take_turns() -> None:
    assert played().step_s(0) == pytest.approx((0.26 - 0.0006, 0.26)), "at best with warm caches"
    shared = played(replace(FEED, kernel_s=0.1, faults_s=0.02))
    worst = 0.26 - 0.07 - 0.01
    assert shared.step_s(0)[1] == pytest.approx(worst), "most of the kernel's part was for shared memory"
    best = 0.16 - 0.1 - 0.0006 + 0.1 - 0.02
    assert shared.step_s(0)[0] == pytest.approx(best * (1 - 0.15 * (1 - best / 0.16)))


def test_three_workers_share_what_two_cannot_make_in_time() -> None:
    slow = replace(FEED, computing_s=(0.27,))
    step = StepModel(0.27, {0: {**OWN, "input_wait": 0.17}})
    assert [played(slow, step).best_s[n] for n in (1, 2, 3)] == pytest.approx([0.27, 0.135, 0.1])


def test_a_slow_batch_is_waited_for_even_where_the_mean_rate_suffices() -> None:
    even, uneven = spread((0.08,) * 10), spread((0.02,) * 9 + (0.62,))  # the same mean
    step = StepModel(0.11, {0: {**OWN, "input_wait": 0.01}})
    assert played(even, step).best_s[2] == pytest.approx(0.1)
    assert played(uneven, step).best_s[2] > 0.115
    assert played(replace(uneven, prefetch=8), step).best_s[2] < played(uneven, step).best_s[2], "more lies ready"


def test_handing_over_takes_the_training_threads_time() -> None:
    given = replace(FEED, workers=0, hand_over_s=(0.001, 0.02))
    step = StepModel(0.26, {0: {**OWN, "input_wait": 0.16}})
    best, worst = played(given, step).step_s(2)
    assert worst == pytest.approx(0.12)
    warm = 1 - 0.15 * (1 - 0.101 / 0.26)
    assert best == pytest.approx(0.1 * warm + 0.001), "nothing else goes through the training thread's caches"


def test_caches_that_no_batch_is_made_in_make_no_worker_faster() -> None:
    step = StepModel(0.26, {0: {**OWN, "input_wait": 0.16}})
    assert played(replace(FEED, workers=0), step).step_s(1) == pytest.approx((0.16, 0.16)), "one makes 6 a second"


def test_what_only_workers_bring_counts_where_there_were_none() -> None:
    moved = replace(FEED, workers=0, moved_s=(0.01, 0.04))
    step = StepModel(0.26, {0: {**OWN, "input_wait": 0.16}}, job_cpu_s=0.26, allowed_cores=2.0)
    free, dear = played(replace(moved, moved_s=(0.0, 0.0)), step), played(moved, step)
    assert dear.best_s[1] == pytest.approx(free.best_s[1] + 0.01) == pytest.approx(0.17)
    assert dear.best_s[2] == pytest.approx(free.best_s[2] + 0.005) == pytest.approx(0.135), "the cores' floor"
    assert dear.worst_s[1] > free.worst_s[1] + 0.039


def test_no_workers_beat_the_cores() -> None:
    found = played(step=StepModel(0.16, {0: OWN}, job_cpu_s=0.26, allowed_cores=2.0), busy_cores=1.6)
    assert found.best_s[3] == pytest.approx(0.13), "260 ms of work on two cores"
    assert found.worst_s[3] > 0.13, "and they crowd each other"


def test_workers_that_sleep_take_no_cores() -> None:
    asleep = replace(FEED, computing_s=(0.001,), waiting_s=(0.159,))
    found = played(asleep, StepModel(0.16, {0: OWN}, job_cpu_s=0.1, allowed_cores=1.0))
    assert found.step_s(2) == pytest.approx((0.1, 0.1), rel=0.06)


def test_a_crowd_of_workers_holds_up_the_training_thread() -> None:
    found = played(step=StepModel(0.16, {0: OWN}, job_cpu_s=0.2, allowed_cores=2.0))
    alone = played(step=StepModel(0.16, {0: OWN}, job_cpu_s=0.2, allowed_cores=64.0))
    assert found.worst_s[2] > alone.worst_s[2] >= 0.1


def test_cores_that_others_use_are_missing_should_it_come_to_the_worst() -> None:
    step = StepModel(0.16, {0: OWN}, job_cpu_s=0.26, allowed_cores=4.0)
    quiet, disturbed = (played(step=step, other_cores=others) for others in (0.0, 2.0))
    assert disturbed.worst_s[3] > quiet.worst_s[3] and disturbed.best_s[3] == pytest.approx(quiet.best_s[3])


def test_neighbours_are_in_the_caches_too() -> None:
    step = StepModel(0.16, {0: OWN}, job_cpu_s=0.16, allowed_cores=2.0)
    beside = {"other_cores": 0.5, "busy_cores": 1.5}
    free, crowded = (played(step=step, crowding=(0.0, cost), **beside) for cost in (0.0, 0.43))
    assert crowded.worst_s[2] > 1.05 * free.worst_s[2]


def test_reads_from_a_shared_device_may_be_as_fast_as_they_can_be() -> None:
    reading = replace(FEED, computing_s=(0.01,), waiting_s=(0.15,), reading_s=0.15)
    assert played(reading).step_s(3) == pytest.approx((0.1, 0.15))
    assert played(replace(reading, reading_s=0.0)).step_s(3) == pytest.approx((0.1, 0.1)), "a sleep is nobody else's"
    assert played(replace(reading, full_s=0.16)).step_s(3) == pytest.approx((0.16, 0.16)), "known to be full"
    assert played(replace(reading, full_s=0.13)).step_s(3) == pytest.approx((0.13, 0.15)), "a limit that is not reached"


def test_what_crowding_was_measured_to_cost_replaces_what_it_might() -> None:
    step = StepModel(0.16, {0: OWN}, job_cpu_s=0.2, allowed_cores=8.0)
    unknown, known = played(step=step), played(step=step, crowding=(0.05, 0.1))
    assert unknown.best_s[4] < known.best_s[4] < known.worst_s[4] < unknown.worst_s[4]


def test_accumulated_batches_are_each_waited_for() -> None:
    step = StepModel(0.32, {0: {"input_wait": 0.12, "forward": 0.2}})
    assert played(replace(FEED, batches=2.0), step).best_s[:3] == pytest.approx((0.52 - 0.0012, 0.32, 0.2))


def test_begins_of_epochs_and_standing_in_line_are_not_the_workers_doing() -> None:
    begins = StepModel(0.18, {0: {**OWN, "input_wait": 0.08}})
    assert played(replace(FEED, begin_s=0.02), begins).best_s[2] == pytest.approx(0.12)
    late = StepModel(0.18, {0: {**OWN, "backward": 0.07}})
    assert played(replace(FEED, delay_s=0.02), late).best_s[2] == pytest.approx(0.1), "of 120 ms, 20 in line"


def test_first_batches_of_epochs_are_waited_for_once_workers_make_them() -> None:
    step = StepModel(0.26, {0: {**OWN, "input_wait": 0.16}})
    every, none = (played(replace(FEED, workers=0, first_s=first_s), step) for first_s in (0.01, 0.0))
    assert every.worst_s[2] == pytest.approx(0.11) == pytest.approx(none.worst_s[2] + 0.01)
    assert every.step_s(0) == none.step_s(0), "in the training process each batch is waited for"


def test_the_rank_that_is_fed_slowest_sets_the_pace() -> None:
    step = StepModel(0.16, {0: {**OWN, "input_wait": 0.0}, 1: OWN})
    feeds = {0: replace(FEED, computing_s=(0.05,)), 1: FEED}
    found = forecast(WorkerModel(step, feeds))
    assert found is not None and found.best_s[2] == pytest.approx(0.1)


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


def test_the_curve_is_the_forecast_in_samples_a_second() -> None:
    times = tuple(1 / (n + 1) for n in range(41))
    curve = worker_curve(Forecast(19, times, tuple(2 * t for t in times)), 8.0, 33)
    assert (curve.measured, curve.knee) == (19, 33)
    assert [p.workers for p in curve.points] == [*range(13), 16, 19, 20, 24, 28, 32, 33, 40]
    assert curve.points[1].samples_per_s == (8.0, 16.0)


def test_the_measured_point_is_on_the_curve_however_many_workers_there_are() -> None:
    many = replace(FEED, workers=80, computing_s=(8.0,))
    found = played(many)
    assert found.measured == 80 and found.step_s(80) == (0.16, 0.16)
    [measured] = [point for point in worker_curve(found, 8.0, found.knee()).points if point.workers == 80]
    assert measured.samples_per_s == pytest.approx((50.0, 50.0))
    assert played(replace(many, workers=40)).most == 64, "of those that there are not, no more"
