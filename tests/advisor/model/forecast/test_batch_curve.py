"""Step time by batch size, as a benchmark measured it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve

# 10 ms for a batch of whatever size and 1 ms a sample, until 64; beyond it each sample takes as long as a whole batch did
CURVE = BatchCurve(16.0, (8.0, 16.0, 32.0, 64.0, 128.0), (0.018, 0.026, 0.042, 0.074, 0.148), oom_at=256.0)


@pytest.mark.parametrize(
    ("batch", "rate"),
    [(8, 8 / 0.018), (16, 16 / 0.026), (24, 24 / 0.034), (128, 128 / 0.148), (100, 100 / (0.074 + 0.074 * 36 / 64))],
)
def test_rates_between_two_sizes_follow_the_line_through_their_times(batch: float, rate: float) -> None:
    assert CURVE.rate(batch) == pytest.approx(rate)
    assert CURVE.gain(batch) == pytest.approx(rate / (16 / 0.026))


@pytest.mark.parametrize(("batch", "covered"), [(7.9, False), (8.0, True), (128.0, True), (128.1, False)])
def test_beyond_the_sizes_measured_nothing_is_known(batch: float, covered: bool) -> None:
    assert CURVE.covers(batch) is covered


@pytest.mark.parametrize(
    ("near", "most", "batch"),
    [
        (0.0, 1e9, 64.0),  # as fast as 128, and smaller
        (0.15, 1e9, 32.0),
        (0.0, 32.0, 32.0),
        (0.0, 16.0, 16.0),
        (0.5, 1e9, 16.0),  # its own is near enough
    ],
)
def test_a_larger_batch_is_the_smallest_that_comes_near_the_best(near: float, most: float, batch: float) -> None:
    assert CURVE.larger(near=near, most=most) == batch


def test_a_batch_that_did_not_fit_is_not_advised() -> None:
    assert replace(CURVE, oom_at=64.0).larger(near=0.0) == 32.0


@pytest.mark.parametrize(("near", "batch"), [(0.0, 64.0), (0.12, 32.0), (0.3, 16.0), (0.9, 8.0)])
def test_a_smaller_batch_is_the_smallest_that_is_nearly_as_fast(near: float, batch: float) -> None:
    assert replace(CURVE, batch=128.0).smaller(near=near) == batch


def test_where_no_smaller_one_is_as_fast_it_stays() -> None:
    assert CURVE.smaller(near=0.05) == 16.0
    between = replace(CURVE, batch=12.0)
    assert between.smaller(near=0.0) == 12.0 and between.smaller(near=0.5) == 8.0
