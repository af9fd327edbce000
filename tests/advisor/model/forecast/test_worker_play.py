"""A DataLoader played through batch by batch: worked examples, each with one limiting factor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fed_ranks import FEED, OWN, played, spread
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import WorkerModel, forecast


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


def test_accumulated_batches_are_each_waited_for() -> None:
    step = StepModel(0.32, {0: {"input_wait": 0.12, "forward": 0.2}})
    assert played(replace(FEED, batches=2.0), step).best_s[:3] == pytest.approx((0.52 - 0.0012, 0.32, 0.2))


def test_epoch_starts_and_queueing_are_not_the_workers_doing() -> None:
    starting = StepModel(0.18, {0: {**OWN, "input_wait": 0.08}})
    assert played(replace(FEED, begin_s=0.02), starting).best_s[2] == pytest.approx(0.12)
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
