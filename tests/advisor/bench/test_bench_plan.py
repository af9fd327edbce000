"""Which settings a benchmark asks for, in what order, and where it stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench_samples import PLAN, cell, machine_that, measured, saturating, setting
from rn50_advisor.advisor.bench.bench_plan import carry_out, knee
from rn50_advisor.advisor.bench.conclude import sweeps
from rn50_advisor.advisor.model.documents.benchmark import Cell, Setting


def test_dimensions_are_measured_one_at_a_time_around_the_fastest() -> None:
    cells = [one.setting for one in carry_out(PLAN, machine_that(saturating))]
    assert cells[:4] == [setting(p, layout, 32) for p in ("fp32", "bf16") for layout in (True, False)]
    swept = [one.batch for one in cells if one == setting("bf16", True, one.batch)]
    assert sorted(swept) == [16, 32, 64, 128, 256]
    # a batch of 128 is within 5 % of 256: there devices are compared, of each precision and with one device beside them
    for precision in ("fp32", "bf16"):
        assert {one.devices for one in cells if one == setting(precision, True, 128, one.devices)} == {1, 2, 4}
    assert len(cells) == len(set(cells)), "nothing is measured twice"


def test_a_sweep_ends_where_memory_does() -> None:
    cells = carry_out(PLAN, machine_that(saturating, fits=64))
    assert [one.setting.batch for one in cells if one.state == "oom"] == [128]
    [sweep] = [s for s in sweeps(cells) if s.devices == 1 and s.precision == "bf16" and s.channels_last]
    assert (sweep.batches, sweep.knee, sweep.oom_at) == ((16, 32, 64), 64, 128)


def test_precisions_are_compared_at_a_batch_that_fits_all_of_them() -> None:
    def measure(wanted: Setting) -> Cell:
        large = wanted.precision == "fp32" and wanted.batch > 8
        return cell(wanted, state="oom") if large else measured(wanted, 100.0)

    cells = carry_out(replace(PLAN, batches=(), devices=(1,)), measure)
    assert {one.setting.precision for one in cells if one.setting.batch == 8 and one.images_per_s} == {"fp32", "bf16"}


def test_nothing_fits_and_nothing_works() -> None:
    assert all(one.state == "oom" for one in carry_out(PLAN, machine_that(saturating, fits=0)))
    failed = carry_out(PLAN, lambda wanted: cell(wanted, state="failed", why="no such model"))
    assert len(failed) == 4, "where no setting of the matrix works, no other is tried"


def test_a_sweep_ends_after_two_that_fail() -> None:
    def measure(wanted: Setting) -> Cell:
        fails = wanted.batch == 16 or wanted.batch >= 128
        return cell(wanted, state="failed") if fails else measured(wanted, 100.0)

    plan = replace(PLAN, devices=(1,), precisions=("fp32",), layouts=(True,), every_combination=True)
    assert [one.setting.batch for one in carry_out(plan, measure)] == [16, 32, 64, 128]


def test_every_combination_is_the_whole_table() -> None:
    plan = replace(PLAN, batches=(128, 256, 512), devices=(1, 2), precisions=("fp32",), every_combination=True)
    cells = [one.setting for one in carry_out(plan, machine_that(saturating))]
    assert set(cells) == {setting("fp32", lay, b, d) for lay in (True, False) for b in (128, 256, 512) for d in (1, 2)}


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(8, 100.0), (16, 150.0), (32, 160.0), (64, 161.0)], 32),
        ([(8, 100.0), (16, 95.0)], 8),  # past it from the start
        ([(8, 95.0), (16, 100.0)], 8),  # exactly 5 % are no gain
        ([(8, 94.9), (16, 100.0)], 16),
        ([(64, 161.0), (8, 100.0)], 64),  # in any order
        ([], None),
    ],
)
def test_the_knee_is_the_smallest_batch_near_the_best(points: list[tuple[int, float]], expected: int | None) -> None:
    assert knee(points) == expected


def test_real_data_stand_beside_synthetic_ones_on_one_device_and_on_all() -> None:
    cells = carry_out(replace(PLAN, data=("synthetic", "real")), machine_that(saturating))
    real = [one.setting for one in cells if one.setting.data == "real"]
    assert {one.devices for one in real} == {1, 4}
    # and the other kind of precision once, in the same layout
    assert [one for one in real if one.precision == "fp32"] == [setting("fp32", True, 128, 1, "real")]
    assert {replace(one, data="synthetic") for one in real} <= {one.setting for one in cells}


def test_data_that_cannot_be_read_fast_enough_are_not_asked_for_again() -> None:
    def measure(wanted: Setting) -> Cell:
        return cell(wanted, state="failed") if wanted.data == "real" else measured(wanted, saturating(wanted))

    cells = carry_out(replace(PLAN, data=("synthetic", "real")), measure)
    assert [one.setting for one in cells if one.setting.data == "real"] == [setting("bf16", True, 128, 1, "real")]
