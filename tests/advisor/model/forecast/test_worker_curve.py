"""The forecast over worker counts as reports show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fed_ranks import FEED, played
from rn50_advisor.advisor.model.forecast.worker_curve import worker_curve
from rn50_advisor.advisor.model.forecast.worker_model import Forecast


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
