"""How a rank is fed: what a batch takes in a worker and in the training process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fed_ranks import FEED, STEP
from rn50_advisor.advisor.model.forecast.worker_feed import CROWDING, WorkerModel

MIXED = replace(FEED, computing_s=(0.1, 0.3), waiting_s=(0.2, 0.0))


def test_a_batch_alone_takes_its_computing_and_its_waiting() -> None:
    assert MIXED.alone_s == pytest.approx(0.3)
    assert MIXED.computing_share == pytest.approx(2 / 3)


def test_in_the_training_process_shared_memory_costs_nothing_and_caches_are_warm_at_best() -> None:
    """Of 0.2 s computing 0.1 are the kernel's: all of it, or 0.07, was for shared memory."""
    assert replace(MIXED, kernel_s=0.1).in_place_s == pytest.approx((0.1 + 0.1 - 0.0006, 0.1 + 0.13))


def test_of_a_short_batch_half_may_have_been_cold() -> None:
    short = replace(FEED, computing_s=(0.0008,), waiting_s=(0.0,))
    assert short.in_place_s == pytest.approx((0.0004, 0.0008))


def test_what_is_made_in_place_stays_as_it_is() -> None:
    assert replace(MIXED, workers=0, kernel_s=0.1).in_place_s == pytest.approx((0.3, 0.3))


def test_the_measured_count_is_the_largest_of_the_ranks() -> None:
    model = WorkerModel(STEP, {0: FEED, 1: replace(FEED, workers=6)})
    assert model.measured == 6 and WorkerModel(STEP, {}).measured == 0


def test_crowding_is_assumed_until_a_run_has_measured_it() -> None:
    assert not WorkerModel(STEP, {}).crowding_measured and WorkerModel(STEP, {}).crowding == CROWDING
    assert WorkerModel(STEP, {}, crowding=(0.1, 0.2)).crowding_measured
