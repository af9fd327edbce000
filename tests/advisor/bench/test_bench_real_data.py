"""Bench on real data: which settings are asked for, what is said of them, and what a loader's pace is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench_samples import A100, OPTIONS, PLAN, cell, machine, machine_that, measured, saturating, setting
from rn50_advisor.advisor.bench.bench_launch import rate_of
from rn50_advisor.advisor.bench.bench_plan import BenchPlan, carry_out
from rn50_advisor.advisor.bench.conclude import against, conclude
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Cell, Setting


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


def test_workers_that_hand_over_together_are_judged_by_whole_rounds() -> None:
    """16 workers bring 16 batches of 256 in 41 s, which are trained in 1.4 s: most steps look fed, the loader is not."""
    rushes = [0.09] * 5 + [41 - 15 * 0.09, *[0.09] * 15] * 2 + [41 - 15 * 0.09] + [0.09] * 10
    assert rate_of(rushes, 256, together=16).value == pytest.approx(16 * 256 / 41)
    assert rate_of(rushes[:20], 256, together=16).value == pytest.approx(16 * 256 / 41), (
        "a round that is not whole is left"
    )
    assert rate_of([0.1] * 3, 32, together=16).value == pytest.approx(320.0), "not one round: as it is"


@pytest.mark.parametrize("every", [False, True], ids=["one at a time", "every combination"])
def test_a_mixed_precision_that_brings_little_on_real_data_is_told_with_its_reason(every: bool) -> None:
    """Twice as fast where it is fed; 2,100 images/s where the loader makes no more."""

    def measure(wanted: Setting) -> Cell:
        alone = 1900.0 if wanted.precision == "fp32" else 3800.0
        if wanted.data == "synthetic" or alone < 2100:
            return measured(wanted, alone)
        return measured(wanted, 2100.0, rule="DAT001", title="Preprocessing exhausts the CPUs")

    plan = BenchPlan(("fp32", "bf16"), (True, False), 64, (), (1,), ("synthetic", "real"), every)
    said = conclude(A100, OPTIONS, carry_out(plan, measure), made_unix_s=0.0).sentences
    where = "bf16, channels-last, batch 64, 1 device"
    assert f"bf16 brings 2.00× over fp32 at 3,800 images/s ({where})" in said
    assert (
        f"bf16 brings only 1.11× over fp32 at 2,100 images/s ({where}, real data): Preprocessing exhausts the CPUs (DAT001)"
        in said
    )


def test_other_data_workers_and_classes_are_named_where_they_matter() -> None:
    def on(data: str, workers: int, classes: int) -> Benchmark:
        given = replace(OPTIONS, data=data, workers=workers, classes=classes)
        cells = [measured(setting("fp32", True, 8, 1, "real" if data else "synthetic"), 100.0)]
        return conclude(machine("cpu"), given, cells, made_unix_s=0.0)

    notes = {}
    for name, there in (("data", on("/old", 2, 10)), ("synthetic", on("", 2, 10)), ("same", on("/new", 4, 100))):
        here = on("/new" if there.options.data else "", 4, 100)
        made = against(here, there, "last.json").against
        assert made is not None and len(made.cells) == 1
        notes[name] = set(made.notes[1:])
    assert notes["same"] == set()
    assert notes["synthetic"] == {"classes: 10 then, 100 now"}, "no cell has been loaded by workers"
    assert notes["data"] == {"classes: 10 then, 100 now", "data: /old then, /new now", "loader workers: 2 then, 4 now"}
