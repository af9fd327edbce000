"""Findings by the time that their fixes save."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.opportunities import gpus_used, split, time_lost


def test_the_largest_saving_comes_first_and_what_saves_nothing_is_apart() -> None:
    small = replace(samples.CHECKPOINT, seconds_per_step=9.0)  # loses most, but its fix saves little
    unknown = replace(samples.STRAGGLER, saving=None)
    found, rest = split(samples.bottleneck(), [small, unknown, samples.LOADER])
    assert [one.finding.rule for one in found] == ["DAT003", "LOP001"]
    assert rest == [unknown]


def test_the_likely_speed_up_decides_where_there_is_one() -> None:
    (one,), _ = split(samples.bottleneck(), [samples.LOADER])
    assert one.saved_s == pytest.approx((1 - 1 / 2.47) / 1.703)
    (other,), _ = split(samples.bottleneck(), [samples.CHECKPOINT])
    assert other.saved_s == pytest.approx(0.0145)


def test_a_saving_is_also_told_for_the_run_and_its_gpus() -> None:
    report = samples.bottleneck()
    (one,), _ = split(report, [samples.LOADER])
    assert one.run_s == pytest.approx((0.31 * 430, 0.38 * 430)) and one.gpu_hours is None
    gpus = tuple(replace(samples.gpu(n), ranks=str(n) if n < 2 else "") for n in range(8))
    assert gpus_used(replace(report, gpus=gpus)) == 2
    (one,), _ = split(replace(report, gpus=gpus), [samples.LOADER])
    assert one.gpu_hours == pytest.approx((0.31 * 430 * 2 / 3600, 0.38 * 430 * 2 / 3600))


def test_a_failure_and_a_fix_that_may_only_slow_down_save_nothing() -> None:
    fatal = replace(samples.LOADER, fatal=True)
    slower = replace(samples.LOADER, saving=Saving((-0.1, 0.0), (0.9, 1.0), ""))
    assert split(samples.bottleneck(), [fatal, slower])[0] == []


def test_time_lost_is_at_most_the_run_and_counts_gpus_that_train() -> None:
    report = samples.bottleneck()
    lost = time_lost(report)
    assert lost.rule == "DAT003" and lost.run_s == report.job.duration_s and lost.gpu_hours is None
    assert lost.lost_s == pytest.approx((1 - 1 / 2.47) / 1.703 * 430)
    trained = replace(report, gpus=(replace(report.gpus[0], ranks="0, 1"),))
    assert time_lost(trained).gpu_hours == pytest.approx((lost.lost_s or 0.0) / 3600)
    short = replace(report, job=replace(report.job, duration_s=10.0))
    assert time_lost(short).lost_s == 10.0


def test_time_lost_is_not_known_without_a_gain() -> None:
    assert time_lost(samples.healthy()).unknown == "none that a fix would save"
    assert time_lost(samples.hang()).lost_s is None
    assert "RUN001" in time_lost(samples.hang()).unknown
